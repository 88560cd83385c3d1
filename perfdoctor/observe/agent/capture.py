"""Saves one step of the program: the programs of its calls, and their arguments.

All of it takes place in the program's own thread and context, between two of its calls: so the
mesh, the precision and the settings are those of the step. What is traced again is traced silently.
"""

import itertools
import math
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import psutil
from msgspec.structs import replace

from perfdoctor.injection.calls import OWN_FILES, Function
from perfdoctor.observe.agent.calls import copied, dynamic, is_number, is_tracing
from perfdoctor.observe.agent.exporting import (
    exported,
    lengthened,
    narrowed,
    short_axes,
    together,
)
from perfdoctor.observe.agent.rewriting import (
    CALLBACKS,
    holds,
    is_exact,
    is_wide,
    with_default_precision,
    without_callbacks,
)
from perfdoctor.observe.agent.roles import Probe
from perfdoctor.observe.agent.silence import silent
from perfdoctor.schema.calls import Leaf
from perfdoctor.schema.capture import (
    AS_IT_IS,
    MANIFEST,
    NO_CALLBACKS,
    RUNGS,
    Capture,
    SavedCall,
    SavedLeaf,
    batch_program,
)

OWN_FILES.add(__file__)
LIMIT_BYTES = 2**30
"""Of values that are saved, at most."""
FREE_SHARE = 4
"""Of the memory and of the disk that are free: at most the n-th part."""
PATIENCE = 3
"""Steps that may begin and turn out to be others, before the capture is given up."""
OF_THE_ENVIRONMENT = re.compile(r"^(XLA|JAX|TF|MALLOC|OMP|MKL|OPENBLAS|NPROC|CUDA|NCCL|LD_)")


Context = AbstractContextManager[None]


class Unwanted(Exception):
    """The step can't be captured; the message says why."""


@dataclass
class Capturer:
    """Makes the calls of the program until one step is saved."""

    jax: Any
    probe: Probe
    folder: Path
    settings: Mapping[str, Any]
    env_at_start: Mapping[str, str]
    threads: int = 1
    """That make the calls."""
    deaf: Callable[[], Context] = nullcontext
    """In which nobody else listens to what jax does."""
    prefix: str = ""
    """Of its files' names; those of an earlier capture are removed once this one is whole."""
    done: threading.Event = field(default_factory=threading.Event)
    failure: str | None = None
    capture: Capture | None = None

    def __post_init__(self) -> None:
        self._room_bytes = room_bytes(self.folder)
        self._thread: int | None = None
        self._false_starts = 0
        self._seconds = 0.0
        self._begin()

    def _begin(self) -> None:
        """With the first call of a step; what was saved of another one is written over."""
        self._calls: list[SavedCall] = []
        self._saved_bytes = 0
        self._copies: list[tuple[str, Any]] = []
        self._made: list[str] = []
        self._failures: dict[str, str] = {}
        self._mesh: tuple[tuple[str, int], ...] = ()
        self._files = itertools.count()

    def __call__(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a call, and save what it takes if it is the next one of a step."""
        if not self.done.is_set() and not is_tracing():
            begun = time.monotonic()
            try:
                self._look(function, args, kwargs)
                self._seconds += time.monotonic() - begun
                if self.capture is not None:
                    self.done.set()
            except Exception as error:
                self.failure = reason(error)
                self.done.set()
        return function.jitted(*args, **kwargs)

    def is_computed(self) -> bool:
        """Whether all that is to be written is computed."""
        return all(copy.is_ready() for _, copy in self._copies)

    def finish(self) -> None:
        """Write what was captured; in the observer's thread, for it waits until it is computed."""
        try:
            if self.capture is not None:
                self.capture = replace(self.capture, seconds=self._seconds)
                self._write_values()
                self._write_manifest(self.capture)
        except Exception as error:
            self.failure = reason(error)
            self.capture = None
        self._copies = []
        if self.capture is None:
            (self.folder / MANIFEST).unlink(missing_ok=True)  # of an earlier look, at other calls

    def _look(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._thread not in (None, threading.get_ident()):
            return
        place = len(self._calls)
        if not is_same(function, self.probe.keys[place]):
            self._false_starts += place > 0
            if self._false_starts > PATIENCE:
                raise Unwanted("its calls come in another order each time")
            self._begin()
            place = 0
            if not is_same(function, self.probe.keys[0]):
                return
        self._thread = threading.get_ident()
        self._calls.append(self._saved(function, args, kwargs, place))
        if len(self._calls) == len(self.probe.keys):
            self.capture = self._finished()

    def _finished(self) -> Capture:
        here = dict(os.environ)
        before = self.env_at_start
        named = [name for name in {*here, *before} if OF_THE_ENVIRONMENT.match(name)]
        return Capture(
            calls=tuple(self._calls),
            settings=dict(self.settings),
            env={
                name: here[name] for name in named if here.get(name) not in (None, before.get(name))
            },
            unset=tuple(name for name in named if name not in here),
            cores=tuple(sorted(os.sched_getaffinity(0))),
            mesh=self._mesh,
            made=tuple(self._made),
            saved_bytes=self._saved_bytes,
            failures=self._failures,
        )

    def _write_values(self) -> None:
        for file, copy in self._copies:
            (self.folder / file).write_bytes(raw_bytes(copy))

    def _write_manifest(self, capture: Capture) -> None:
        """It comes last, and is renamed: whoever sees it sees all."""
        beside = self.folder / f"{MANIFEST}.part"
        beside.write_bytes(msgspec.json.encode(capture))
        beside.rename(self.folder / MANIFEST)
        for file in self.folder.iterdir():  # of an earlier capture
            if file.name != MANIFEST and not file.name.startswith(self.prefix):
                file.unlink()

    def _saved(
        self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any], place: int
    ) -> SavedCall:
        """One call: its programs, and the values that no earlier call of the step returns."""
        known = self.probe.calls[place].leaves
        args_then, kwargs_then = dynamic(function, args, kwargs)
        values = self.jax.tree_util.tree_leaves((args_then, kwargs_then))
        if len(values) != len(known):
            raise Unwanted(f"{function.name} is called with other arguments than before")
        with silent(), self.deaf():
            traced = function.jitted.trace(*args, **kwargs)
            closed = traced.jaxpr
            if len(closed.in_avals) != len(values):
                raise Unwanted(f"{function.name} takes arguments that can't be told apart")
            programs = self._programs(function, closed, values, args, kwargs, place)
            leaves = [
                self._saved_leaf(value, leaf, aval, place)
                for value, leaf, aval in zip(values, known, closed.in_avals, strict=True)
            ]
        return SavedCall(
            function=function.name,
            leaves=tuple(leaves),
            donated=donated_in(self.jax, traced, len(values)),
            programs=programs,
            results=len(closed.out_avals),
        )

    def _programs(
        self,
        function: Function,
        closed: Any,
        values: list[Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        place: int,
    ) -> dict[str, str]:
        """The program as it is, and changed where there is something to change."""
        found: dict[str, str] = {}
        calls_back = holds(closed, CALLBACKS)
        wanted: dict[str, Callable[[], Any]] = {}
        if not calls_back:
            wanted[AS_IT_IS] = lambda: closed
        else:
            self._failures[AS_IT_IS] = "it calls back to Python, which can't be exported"
            wanted[NO_CALLBACKS] = lambda: without_callbacks(closed)
        if is_exact(closed):
            wanted["inexact"] = lambda: with_default_precision(closed)
        if is_wide(closed):
            wanted["float32"] = lambda: narrowed(self.jax, function, args, kwargs)
        if not calls_back:
            wanted |= self._with_more_data(function, closed, values, args, kwargs, place)
        for name, make in wanted.items():
            try:
                program = make()
                if name != "together" and len(self.probe.calls) > 1:
                    self._check_results(place, closed, program)
                shardings = [getattr(value, "sharding", None) for value in values]
                content = exported(self.jax, program, shardings)
            except Exception as error:
                if name == AS_IT_IS:
                    raise
                self._failures[name] = reason(error)
                continue
            file = f"{self.prefix}{place}-{name}.bin"
            (self.folder / file).write_bytes(content)
            found[name] = file
        return found

    def _check_results(self, place: int, closed: Any, program: Any) -> None:
        """Unwanted if a later call takes a result that has another shape or type now."""
        sources = {leaf.source for call in self.probe.calls for leaf in call.leaves}
        for index, (was, now) in enumerate(zip(closed.out_avals, program.out_avals, strict=True)):
            if (place, index) in sources and was.shape != now.shape:
                raise Unwanted("what a call of the step hands to the next one grows with its data")

    def _with_more_data(
        self,
        function: Function,
        closed: Any,
        values: list[Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        place: int,
    ) -> dict[str, Callable[[], Any]]:
        """The programs for larger batches, and for the requests of several threads together."""
        leaves = self.probe.calls[place].leaves
        fresh = [n for n, leaf in enumerate(leaves) if leaf.role == "new" and leaf.shape]
        fresh = [n for n in fresh if leaves[n].kind in ("device", "host")]
        found: dict[str, Callable[[], Any]] = {}
        if not fresh:
            return found
        if self.threads > 1 and all(leaf.role != "state" for leaf in leaves):
            found["together"] = lambda: together(self.jax, closed, fresh, self.threads)
        chosen = {id(values[n]) for n in fresh}
        for length in short_axes([leaves[n].shape for n in fresh]):
            for rung in RUNGS:

                def more(length: int = length, rung: int = rung) -> Any:
                    return lengthened(self.jax, function, args, kwargs, chosen, length, rung)

                found[batch_program(length, rung)] = more
        return found

    def _saved_leaf(self, value: Any, leaf: Leaf, aval: Any, place: int) -> SavedLeaf:
        """An argument, with its values where they are needed and there is room for them."""
        saved = SavedLeaf(
            role=leaf.role,
            kind=leaf.kind,
            source=leaf.source,
            shape=(),
            dtype=type(value).__name__,
        )
        if is_number(value):
            if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
                return replace(saved, number=value)
            value = as_array(value, aval.dtype)  # a manifest can't hold it
        if leaf.kind == "key":
            saved = replace(saved, key=str(self.jax.random.key_impl(value)))
            value = self.jax.random.key_data(value)
        split = self._split(value)
        saved = replace(saved, shape=tuple(value.shape), dtype=str(value.dtype), split=split)
        if leaf.source is not None and leaf.source[0] < place:
            return saved  # what an earlier call of this very step returns
        size = int(value.nbytes)
        if self._saved_bytes + size > self._room_bytes:
            self._made.append(leaf.argument)
            low, high = bounds_of(value)
            return replace(saved, low=low, high=high)
        file = f"{self.prefix}{next(self._files)}.raw"
        if lies_in_host_memory(self.jax, value):
            self._copies.append((file, copied(self.jax, value)))
        else:  # the program may fill it anew, or need the device's memory for itself
            (self.folder / file).write_bytes(raw_bytes(value))
        self._saved_bytes += size
        return replace(saved, file=file)

    def _split(self, value: Any) -> tuple[tuple[str, ...], ...] | None:
        """How an array lies on several devices; None on one."""
        sharding = getattr(value, "sharding", None)
        if sharding is None or len(sharding.device_set) < 2:
            return None
        mesh = getattr(sharding, "mesh", None)
        if mesh is None:
            raise Unwanted(f"its arrays are spread by {type(sharding).__name__}")
        axes = tuple((str(name), int(size)) for name, size in mesh.shape.items())
        if self._mesh not in ((), axes):
            raise Unwanted("its arrays are spread over different meshes")
        self._mesh = axes
        return tuple(
            () if each is None else (each,) if isinstance(each, str) else tuple(each)
            for each in sharding.spec
        )


def is_same(function: Function, key: Hashable) -> bool:
    """Whether a call is of the function that was probed, or of one made anew in each step."""
    return key in (function.number, function.origin)


def reason(error: Exception) -> str:
    """In one line."""
    text = next((line for line in str(error).splitlines() if line.strip()), "")
    return text if isinstance(error, Unwanted) else f"{type(error).__name__}: {text}"[:300]


def room_bytes(folder: Path) -> int:
    """For values, in memory and on the disk."""
    free = min(psutil.virtual_memory().available, shutil.disk_usage(folder).free)
    return int(min(LIMIT_BYTES, free / FREE_SHARE))


def lies_in_host_memory(jax: Any, value: Any) -> bool:
    """Whether it is an array of jax on the CPU, of whose memory there is enough for a copy."""
    if not isinstance(value, jax.Array):
        return False
    return all(device.platform == "cpu" for device in value.devices())


def donated_in(jax: Any, traced: Any, count: int) -> tuple[bool, ...]:
    """By leaf, whether the call may write its results there."""
    found = tuple(bool(each.donated) for each in jax.tree_util.tree_leaves(traced.args_info))
    return found if len(found) == count else (False,) * count


def raw_bytes(value: Any) -> Any:
    """The values of an array in the order of their indices, as a buffer."""
    import numpy

    flat = numpy.ascontiguousarray(numpy.asarray(value)).reshape(-1)
    return memoryview(flat.view(numpy.uint8))  # type: ignore[arg-type]


def as_array(number: Any, dtype: Any) -> Any:
    """A Python number."""
    import numpy

    return numpy.asarray(number, dtype)


def bounds_of(value: Any) -> tuple[int, int]:
    """Of an integer array: the lowest and the highest of its values, or of a million of them."""
    import numpy

    if not numpy.issubdtype(value.dtype, numpy.integer) or not value.size:
        return 0, 1
    some = numpy.asarray(value.reshape(-1)[:1_000_000])
    return int(some.min()), int(some.max()) + 1
