"""A first look at the program's calls, for one that ends before it is steady.

What it takes is little: some calls are probed, and the others timed. Of the arguments only shapes
and types are kept; a program that has ended has no values left, so they are made up.
"""

import math
import time
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from perfdoctor.injection.calls import OWN_FILES, Function
from perfdoctor.observe.agent.callers import is_same
from perfdoctor.observe.agent.calls import Prober, is_tracing
from perfdoctor.observe.agent.capture import Capturer
from perfdoctor.observe.agent.form import kind_of
from perfdoctor.observe.agent.refusal import Unwanted
from perfdoctor.observe.agent.roles import Probe, step_of
from perfdoctor.observe.agent.span import Span
from perfdoctor.observe.agent.timing import Timer
from perfdoctor.observe.agent.values import room_bytes
from perfdoctor.schema.recording import Frame

OWN_FILES.add(__file__)
MOST_TIMED = 20_000
"""Calls that are timed: a program may go on for minutes until it is steady, and make millions."""
SPREAD = 0.1
"""The standard deviation of values that are made up, so that results stay finite."""


@dataclass(frozen=True)
class Look:
    """An array among the arguments, without its values."""

    kind: str
    shape: tuple[int, ...]
    dtype: Any
    sharding: Any
    size_bytes: int
    key: Any = None
    """Of an array of random keys: how they are made."""


class Glance:
    """Makes the program's calls from early on, until something better looks at them."""

    def __init__(self, jax: Any, stacks: dict[str, list[list[Frame]]]) -> None:
        """`stacks`: from where functions are called, by their names; those that are seen are added
        to it.
        """
        self.begin_ns = time.time_ns()
        self.prober = Prober(jax, stacks=stacks)
        self.timer = Timer(jax, math.inf)
        self._jax = jax
        self._looks: dict[int, tuple[Function, Any]] = {}
        """By the function's number: the latest arguments."""

    def __call__(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a call; whatever goes wrong with us is no matter of the program."""
        if self.prober.done.is_set():
            if len(self.timer.calls) >= MOST_TIMED:
                return function.jitted(*args, **kwargs)
            return self.timer(function, args, kwargs)
        try:
            if not is_tracing():
                looks = self._jax.tree_util.tree_map(self._look, (args, kwargs))
                self._looks[function.number] = function, looks
        except Exception:
            self._looks.pop(function.number, None)
        return self.prober(function, args, kwargs)

    def told(self) -> tuple[Span, Probe] | None:
        """The time of a step and its calls, once the program has ended; None if it made too few."""
        self.prober.calls = [each for each in self.prober.calls if each.end_ns]
        if self.prober.failure is not None or not self.timer.end():
            return None
        return step_of(self.timer, self.prober)

    def capture(self, capturer: Capturer, probe: Probe) -> None:
        """Save the step with values that are made up."""
        calls = [self._latest(probe, place) for place in range(len(probe.keys))]
        leaves = self._jax.tree_util.tree_leaves([looks for _, looks in calls])
        sizes = [each.size_bytes for each in leaves if isinstance(each, Look)]
        if sum(sizes) > room_bytes(capturer.folder):
            raise Unwanted("its arguments take too much memory")
        for function, looks in calls:
            args, kwargs = self._jax.tree_util.tree_map(self._made_up, looks)
            capturer.save(function, args, kwargs)
        if capturer.capture is not None:
            made = [leaf.argument for call in probe.calls for leaf in call.leaves if leaf.shape]
            capturer.capture = replace(capturer.capture, made=tuple(made))

    def _latest(self, probe: Probe, place: int) -> tuple[Function, Any]:
        for found in self._looks.values():
            if is_same(found[0], probe.keys[place]):
                return found
        raise Unwanted("what a call of its step takes could not be seen")

    def _look(self, leaf: Any) -> Any:
        if not hasattr(leaf, "dtype") or isinstance(leaf, type):  # jnp.float32 has one, too
            return leaf
        kind = kind_of(self._jax, leaf)
        return Look(
            kind=kind,
            shape=tuple(leaf.shape),
            dtype=leaf.dtype,
            sharding=getattr(leaf, "sharding", None),
            size_bytes=int(leaf.nbytes),
            key=self._jax.random.key_impl(leaf) if kind == "key" else None,
        )

    def _made_up(self, leaf: Any) -> Any:
        """Normally distributed; zeros, where they are no floating-point numbers, for they may be
        indices.
        """
        if not isinstance(leaf, Look):
            return leaf
        if leaf.kind == "key":
            some = self._jax.random.key(0, impl=leaf.key)
            return self._jax.random.split(some, leaf.shape) if leaf.shape else some
        import numpy

        values = numpy.zeros(leaf.shape, leaf.dtype)
        if self._jax.dtypes.issubdtype(leaf.dtype, numpy.inexact):
            noise = numpy.random.default_rng(0).standard_normal(leaf.shape)
            values = (SPREAD * noise).astype(leaf.dtype)
        return values if leaf.sharding is None else self._jax.device_put(values, leaf.sharding)
