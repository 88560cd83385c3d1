"""Sits in a copy of the user's script during a trial: counts its steps and applies a Change to it.

A step is a call of the jitted function that the observation found to make the steps. It is counted
by a wrapper around what `jax.jit` returns; no profiler runs.

JAX computes behind the script's back: a script that reads its loss every fifty steps calls fifty
steps in a burst. So the copy is not suspended just anywhere: it is told after how many calls to
rest, and does so once all that the last one returned has been computed. Between two rests, what was
called is what was computed.
"""

import functools
import gc
import mmap
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perfdoctor.injection.bootstrap import Orders
from perfdoctor.kernel import offer_to_the_oom_killer
from perfdoctor.trials.tally import (
    CALLS,
    COMPILES,
    COMPILING_NS,
    EVERY,
    FIRST,
    KEPT,
    REST_AT,
    RESTS_SINCE_NS,
    SIZE_BYTES,
    STEPS,
    paused_ns,
)

SET_UP_STEPS, SET_UP_CALLS = 3, 100
"""So many steps in, or calls of anything, all that a set-up makes is alive."""
PHASES = "/jax/core/compile/"
COMPILED = PHASES + "backend_compile_duration"
REST_POLL_S = 2e-4
ATTRIBUTES = ("lower", "trace", "eval_shape", "clear_cache", "_cache_size")


def attach(jax: Any, orders: Orders) -> None:
    """Called once the script has imported jax; see `perfdoctor.injection`."""
    offer_to_the_oom_killer()
    if orders["cores"]:
        os.sched_setaffinity(0, orders["cores"])
    impose(jax, orders["settings"])
    steps, every = shared(orders, STEPS), shared(orders, EVERY)
    wait = jax.block_until_ready
    then = once_set_up(freeze=orders["freeze"], skip=orders["skip_collect"])
    count = Counting(orders["function"], steps, every, wait, then)
    for name in ("jit", "pmap"):
        setattr(jax, name, count.jit(getattr(jax, name)))
    jax.monitoring.register_event_duration_secs_listener(Compiling(steps))


def shared(orders: Orders, name: str) -> memoryview:
    """Our side of a tally."""
    with (Path(orders["folder"]) / name).open("r+b") as file:
        return memoryview(mmap.mmap(file.fileno(), SIZE_BYTES)).cast("q")


def impose(jax: Any, settings: dict[str, Any]) -> None:
    """Make JAX settings, and let the script's own code not unmake them."""
    update = jax.config.update

    def update_others(name: str, value: Any) -> None:
        if name not in settings:
            update(name, value)

    for name, value in settings.items():
        update(name, value)
    if settings:
        jax.config.update = update_others


class Compiling:
    """Counts compilations, and the time in which something was traced, lowered or compiled, but for
    pauses of the copy.

    Phases contain each other: a jitted function is traced while another one is.
    """

    def __init__(self, tally: memoryview) -> None:
        self._tally = tally
        self._phases: list[tuple[int, int]] = []
        """When each one that no other contains began, and what it took; nanoseconds."""

    def __call__(self, name: str, seconds: float, **details: Any) -> None:
        if not name.startswith(PHASES):
            return
        end = time.monotonic_ns()
        begin = end - int(seconds * 1e9)
        while self._phases and self._phases[-1][0] >= begin:
            self._tally[COMPILING_NS] -= self._phases.pop()[1]
        took = end - begin - paused_ns(self._tally, begin, end)
        self._phases.append((begin, took))
        self._tally[COMPILING_NS] += took
        self._tally[COMPILES] += name == COMPILED


class Counting:
    """Counts the calls of what `jax.jit` makes: those of the step, and those of everything.

    Where the step is no jitted function of the script's own (`jax_disable_jit` makes each operation
    one), all calls together tell how fast it goes. Calls within calls are not counted there.
    """

    def __init__(
        self,
        function: str,
        steps: memoryview,
        every: memoryview,
        wait: Callable[[Any], object],
        once_set_up: Callable[[], object],
    ) -> None:
        self._function, self._wait = function, wait
        self._steps, self._every = steps, every
        self._once_set_up = once_set_up
        self._is_set_up = False
        self._inside = threading.local()

    def jit(self, jit: Any) -> Any:
        """`jax.jit`, whose products count their calls."""

        @functools.wraps(jit)
        def counting_jit(*arguments: Any, **named: Any) -> Any:
            return self._counted(jit(*arguments, **named))

        return counting_jit

    def _counted(self, jitted: Any) -> Any:
        if not hasattr(jitted, "lower"):  # jit(static_argnums=…) makes a decorator
            return lambda fun: self._counted(jitted(fun))
        is_step = getattr(jitted, "__name__", None) == self._function

        @functools.wraps(jitted)
        def call(*arguments: Any, **named: Any) -> Any:
            if is_step:
                write(self._steps)
                self._note_set_up(self._steps[CALLS] == SET_UP_STEPS)
            if getattr(self._inside, "a_call", False):
                return jitted(*arguments, **named)
            write(self._every)
            self._note_set_up(self._every[CALLS] == SET_UP_CALLS)
            self._inside.a_call = True
            try:
                outputs = jitted(*arguments, **named)
            finally:
                self._inside.a_call = False
            if is_step:
                rest_if_asked(self._steps, outputs, self._wait)
            rest_if_asked(self._every, outputs, self._wait)
            return outputs

        for name in ATTRIBUTES:
            if hasattr(jitted, name):
                setattr(call, name, getattr(jitted, name))
        return call

    def _note_set_up(self, is_set_up: bool) -> None:
        if is_set_up and not self._is_set_up:
            self._is_set_up = True
            self._once_set_up()


def once_set_up(*, freeze: bool, skip: bool) -> Callable[[], object]:
    """What is to be done with the garbage collector when all that a set-up makes is alive."""

    def change_collecting() -> None:
        if freeze:
            gc.collect()
            gc.freeze()
        if skip:
            skip_collect(gc.collect)

    return change_collecting


def skip_collect(collect: Callable[..., int]) -> None:
    """Put something that does nothing in the place of `gc.collect`, wherever it was imported to."""

    def collects_nothing(generation: int = 2) -> int:
        return 0

    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", {})
        for name in [name for name, value in names.items() if value is collect]:
            names[name] = collects_nothing


def write(tally: memoryview) -> None:
    """Add a call, now."""
    calls = tally[CALLS]
    tally[FIRST + calls % KEPT] = time.monotonic_ns()
    tally[CALLS] = calls + 1


def rest_if_asked(tally: memoryview, outputs: Any, wait: Callable[[Any], object]) -> None:
    """Once `outputs` are computed, until we are let go on; we are suspended meanwhile."""
    if not is_to_rest(tally):
        return
    wait(outputs)
    tally[RESTS_SINCE_NS] = time.monotonic_ns()
    while is_to_rest(tally):
        time.sleep(REST_POLL_S)


def is_to_rest(tally: memoryview) -> bool:
    """Whether as many calls were made as were to be made."""
    return bool(0 < tally[REST_AT] <= tally[CALLS])
