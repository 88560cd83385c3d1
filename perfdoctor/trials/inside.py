"""Sits in the user's script during a trial: counts its steps and applies a Change to it.

A step is a call of the jitted function that the observation found to make the steps. It is counted
by a wrapper around what `jax.jit` returns; no profiler runs.

JAX computes behind the script's back: a script that reads its loss every fifty steps calls fifty
steps in a burst. So the script is not suspended just anywhere: it is told after how many calls to
rest, and does so once all that the last one returned has been computed. Between two rests, what was
called is what was computed.
"""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perfdoctor.counters import CALLS, EVERY, STEPS, Compiling, opened, rest_if_asked, write
from perfdoctor.injection.calls import Function, Hearing, wrap_makers
from perfdoctor.injection.imposing import impose, once_set_up
from perfdoctor.kernel import offer_to_the_oom_killer
from perfdoctor.protocol import Orders

SET_UP_STEPS, SET_UP_CALLS = 3, 100
"""Steps, or calls of anything jitted, after which all that a set-up makes is alive."""


def attach(jax: Any, orders: Orders) -> None:
    """Called once the script has imported jax; see `perfdoctor.injection`."""
    offer_to_the_oom_killer()
    if orders["cores"]:
        os.sched_setaffinity(0, orders["cores"])
    impose(jax, orders["settings"])
    folder = Path(orders["folder"])
    steps, every = opened(folder, STEPS), opened(folder, EVERY)
    wait = jax.block_until_ready
    then = once_set_up(freeze=orders["freeze"], skip=orders["skip_collect"])
    count = Counting(orders["function"], steps, every, wait, then)
    hearing = Hearing()
    hearing.hear = count
    wrap_makers(jax, hearing)
    jax.monitoring.register_event_duration_secs_listener(Compiling(steps))


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

    def __call__(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a call, and count it."""
        is_step = function.name == self._function
        if is_step:
            write(self._steps)
            self._note_set_up(self._steps[CALLS] == SET_UP_STEPS)
        if getattr(self._inside, "a_call", False):
            return function.jitted(*args, **kwargs)
        write(self._every)
        self._note_set_up(self._every[CALLS] == SET_UP_CALLS)
        self._inside.a_call = True
        try:
            outputs = function.jitted(*args, **kwargs)
        finally:
            self._inside.a_call = False
        if is_step:
            rest_if_asked(self._steps, outputs, self._wait)
        rest_if_asked(self._every, outputs, self._wait)
        return outputs

    def _note_set_up(self, is_set_up: bool) -> None:
        if is_set_up and not self._is_set_up:
            self._is_set_up = True
            self._once_set_up()
