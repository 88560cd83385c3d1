"""Saves one step of the program: the programs of its calls, and their arguments.

All of it takes place in the program's own thread and context, between two of its calls: so the
mesh, the precision and the settings are those of the step. What is traced again is traced silently.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from perfdoctor.injection.calls import OWN_FILES, Function
from perfdoctor.observe.agent.arrays import elements_in
from perfdoctor.observe.agent.batches import LaterBatches
from perfdoctor.observe.agent.callers import is_same
from perfdoctor.observe.agent.calls import is_tracing
from perfdoctor.observe.agent.compiled import compiled_before, serialized
from perfdoctor.observe.agent.form import dynamic
from perfdoctor.observe.agent.manifest import made_in_code, write_manifest
from perfdoctor.observe.agent.refusal import Unwanted, reason
from perfdoctor.observe.agent.roles import Probe
from perfdoctor.observe.agent.silence import Context, silent
from perfdoctor.observe.agent.unchecked import errors_among
from perfdoctor.observe.agent.values import SavedValues, room_bytes
from perfdoctor.observe.agent.variants import TracedCall, Variants, donated_in, grown_alike
from perfdoctor.schema.capture import AS_IT_IS, MANIFEST, Capture, SavedCall

OWN_FILES.add(__file__)
PATIENCE = 3
"""Steps that may begin and turn out to be others, before the capture is given up."""
LARGE_BYTES = 2**24
"""An exported program of more holds arrays that its function has closed over. What XLA has compiled
holds them too, and to write 300 MB so stopped all of the program's threads for 3 s."""
UNUSUAL, UNUSUAL_S = 8, 6.0
"""Steps that are let pass since their batch has not the usual size, and seconds for which they are
at most."""


@dataclass
class Capturer:
    """Makes the calls of the program until one step is saved."""

    jax: Any
    probe: Probe
    folder: Path
    settings: Mapping[str, Any]
    env_at_start: Mapping[str, str]
    threads: int = 1
    """Threads that make the calls."""
    deaf: Callable[[], Context] = nullcontext
    """A context in which nobody else listens to what jax does."""
    prefix: str = ""
    """What the names of its files begin with; those of an earlier capture are removed once this one
    is whole."""
    reuses_memory: bool = True
    """See `Capture`."""
    takes_any: bool = False
    """Whether any step will do, since no other one comes."""
    done: threading.Event = field(default_factory=threading.Event)
    failure: str | None = None
    capture: Capture | None = None

    def __post_init__(self) -> None:
        self._room_bytes = room_bytes(self.folder)
        self._thread: int | None = None
        self._later: LaterBatches | None = None
        self._false_starts = 0
        self._unusual, self._began_s = 0, time.monotonic()
        self._seconds = 0.0
        self._begin()

    def _begin(self) -> None:
        """Begin anew with the first call of a step; what was saved of another is written over."""
        self._calls: list[SavedCall] = []
        self._compiled: list[Any] = []
        self._multiplying: set[int] = set()
        self._values = SavedValues(self.jax, self.folder, self.prefix, self._room_bytes)
        self._failures: dict[str, str] = {}

    def __call__(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a call, and save what it takes if it is the next one of a step."""
        if not is_tracing():
            self.save(function, args, kwargs)
        return function.jitted(*args, **kwargs)

    def save(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Save what a call takes if it is the next one of a step."""
        if self.done.is_set():
            return
        begun = time.monotonic()
        try:
            if self._later is None:
                self._look(function, args, kwargs)
            else:
                self._later.look(function, args, kwargs)
            self._seconds += time.monotonic() - begun
            if self.is_enough():
                self.done.set()
        except Exception as error:
            if self.capture is None:
                self.failure = reason(error)
            self.done.set()

    def is_enough(self) -> bool:
        """Whether a step is saved, and some batches after it; or can't be."""
        return self.done.is_set() or (self._later is not None and self._later.are_enough())

    def is_computed(self) -> bool:
        """Whether all that is to be written is computed."""
        return self._values.is_computed()

    def finish(self) -> None:
        """Write what was captured; in the observer's thread, for it waits until it is computed."""
        try:
            if self.capture is not None:
                if self._later is not None:
                    self.capture = self._later.added_to(self.capture)
                all_values, parts = self._values.written()
                self.capture = replace(
                    self.capture,
                    calls=tuple(map(self._with_executable, self.capture.calls, self._compiled)),
                    parts=parts,
                    all_values=all_values,
                    saved_bytes=self._values.saved_bytes,
                    seconds=self._seconds,
                )
                self._write_manifest(self.capture)
        except Exception as error:
            self.failure = reason(error)
            self.capture = None
        self._values.forget_copies()
        self._compiled = []
        if self.capture is None:
            (self.folder / MANIFEST).unlink(missing_ok=True)  # of an earlier look, at other calls

    def _with_executable(self, call: SavedCall, compiled: Any) -> SavedCall:
        """The call, with what XLA has compiled for it, if that holds no large arrays."""
        if compiled is None:
            return call
        program = call.programs[AS_IT_IS]
        is_large = (self.folder / program).stat().st_size > LARGE_BYTES
        content = None if is_large else serialized(compiled)
        if content is None:
            return call
        file = program.replace(".bin", ".executable")
        (self.folder / file).write_bytes(content)
        return replace(call, executable=file)

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
        if place == 0 and self._is_unusual(function, args, kwargs):
            return
        self._thread = threading.get_ident()
        self._calls.append(self._saved(function, args, kwargs, place))
        if len(self._calls) == len(self.probe.keys):
            self.capture = self._finished()
            left_bytes = self._room_bytes - self._values.saved_bytes
            self._later = LaterBatches(
                self.jax, self.capture, self._is_at, self._values.file_of, left_bytes
            )

    def _is_at(self, function: Function, place: int) -> bool:
        return is_same(function, self.probe.keys[place])

    def _is_unusual(
        self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> bool:
        """Whether a step's first call does not stand for all, and one that does may come."""
        if self.takes_any:
            return False
        leaves = self.jax.tree_util.tree_leaves(dynamic(function, args, kwargs))
        is_unusual = elements_in(leaves) not in self.probe.usual_size
        is_unusual &= self._unusual < UNUSUAL and time.monotonic() - self._began_s < UNUSUAL_S
        self._unusual += is_unusual
        return is_unusual

    def _finished(self) -> Capture:
        env, unset = made_in_code(self.env_at_start)
        return Capture(
            calls=tuple(grown_alike(self._calls, self._multiplying)),
            settings=dict(self.settings),
            env=env,
            unset=unset,
            cores=tuple(sorted(os.sched_getaffinity(0))),
            mesh=self._values.mesh,
            made=tuple(self._values.made),
            saved_bytes=self._values.saved_bytes,
            reuses_memory=self.reuses_memory,
            failures=self._failures,
        )

    def _write_manifest(self, capture: Capture) -> None:
        write_manifest(self.folder, capture)
        for file in self.folder.iterdir():  # of an earlier capture
            if file.is_file() and file.name != MANIFEST and not file.name.startswith(self.prefix):
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
            errors = errors_among(self.jax, traced.out_info)
            call = TracedCall(function, args, kwargs, place, values, closed, errors)
            programs = self._programs(call)
            is_as_it_is = AS_IT_IS in programs
            self._compiled.append(compiled_before(self.jax, traced) if is_as_it_is else None)
            if call.multiplies:
                self._multiplying.add(place)
            leaves = [
                self._values.saved(value, leaf, aval, place)
                for value, leaf, aval in zip(values, known, closed.in_avals, strict=True)
            ]
        return SavedCall(
            function=function.name,
            leaves=tuple(leaves),
            donated=tuple(
                leaf.donated or each  # jax leaves donation out where it searches for NaNs
                for leaf, each in zip(known, donated_in(self.jax, traced, len(values)), strict=True)
            ),
            programs=programs,
            results=len(closed.out_avals),
        )

    def _programs(self, call: TracedCall) -> dict[str, str]:
        """The files of its programs, by their names."""
        variants = Variants(self.jax, self.probe, self.threads, self._failures)
        files: dict[str, str] = {}
        for name, content in variants.exported(call):
            files[name] = f"{self.prefix}{call.place}-{name}.bin"
            (self.folder / files[name]).write_bytes(content)
        return files
