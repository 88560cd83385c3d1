"""Runs a captured step again and again, with the host's own part emulated beside it."""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import jax
import numpy as np

from perfdoctor.replay.ahead import Called, fed
from perfdoctor.replay.beside import (
    Beside,
    processes_beside,
    restless_beside,
    restless_threads,
    spin,
    thread_awaited,
    thread_beside,
)
from perfdoctor.replay.step import Outputs, Step
from perfdoctor.schema.capture import Capture, Conditions

WARM_STEPS = 3
"""Steps that are made before any is timed."""
FIRST_STEPS, SINGLES = 2, 3
"""Steps by which it is guessed first how long one takes; and how often one is timed by itself."""
FEWEST_LOOKED, LOOKED_S = 3, 0.2
"""Steps, and seconds of them, in which each is waited for and its calls are looked at."""
SLEEPS, SLEEP_S = 20, 1e-3
"""Sleeps, and the seconds of each, by which it is told how late a thread wakes up."""


class Loop:
    """One set of conditions, compiled and warm."""

    def __init__(self, folder: Path, capture: Capture, conditions: Conditions) -> None:
        self._conditions = conditions
        self._step = Step(folder, capture, conditions)
        count = len(capture.calls)
        self._spin_ns = [round(each * 1e6) for each in padded(conditions.spin_ms, count)]
        self._pauses = pauses_of(conditions, count)
        self._overlap_ns = round(conditions.overlap_ms * 1e6)
        self._every = round(1 / conditions.waits) if conditions.waits > 0 else 0
        self._waits_after = frozenset(conditions.waits_after or (count - 1,))
        self._step_s: float | None = None
        self._ends = 0.0
        """See `overlapping`."""
        self.inside_cpu_ms: tuple[float, ...] = ()
        self.waited_ms = 0.0

    def run(self, seconds: float) -> tuple[int, float]:
        """Steps for about so long, and how long they take where others go before and come after
        them; seconds. What one takes by itself is known from a few only, and may seem to overlap
        with the next one for longer than the host's own work allows.
        """
        if self._step_s is None:
            self._step_s = self._first_guess_s(seconds)
        steps, took_s = self._timed(max(1, round(seconds / self._step_s)))
        works_s = min(took_s, steps * self._conditions.work_ms / 1e3)
        took_s = max(works_s, took_s * steps / (steps + self._ends))
        self._step_s = took_s / steps
        return steps, took_s

    def _first_guess_s(self, seconds: float) -> float:
        """What a step takes, and which part of it overlaps with the next one. A guess by two steps
        is a poor one, if there is time for more.
        """
        self._timed(WARM_STEPS)
        self._look_at_calls(min(LOOKED_S, seconds))
        single_s = self._timed(1)[1]
        steps, took_s = self._timed(FIRST_STEPS)
        if seconds > 3 * took_s:
            single_s = median(self._timed(1)[1] for _ in range(SINGLES))
            steps, took_s = self._timed(max(FIRST_STEPS, round(seconds / 3 * steps / took_s)))
        waits_at_the_end = self._every == 1 and len(self._step.calls) - 1 in self._waits_after
        is_ahead = not waits_at_the_end or self._conditions.awaited_ms > 0
        if self._conditions.callers == 1 and is_ahead:
            self._ends = overlapping(single_s, steps, took_s)
        return took_s / (steps + self._ends)

    def _look_at_calls(self, seconds: float) -> None:
        """What each call takes until it returns, and how long the step is computed after that."""
        latest, until = self._step.first(), time.perf_counter() + seconds
        inside_ns, waited_s, count = [0] * len(self._step.calls), 0.0, 0
        while count < FEWEST_LOOKED or time.perf_counter() < until:
            for place, call in enumerate(self._step.calls):
                begin_ns = time.thread_time_ns()
                latest[place] = call(latest)
                inside_ns[place] += time.thread_time_ns() - begin_ns
            returned = time.perf_counter()
            wait_for(latest)
            waited_s += time.perf_counter() - returned
            count += 1
        self.inside_cpu_ms = tuple(each / count / 1e6 for each in inside_ns)
        self.waited_ms = waited_s / count * 1e3

    def _timed(self, steps: int) -> tuple[int, float]:
        """Time so many steps, from the captured state on, until all is computed."""
        callers = self._conditions.callers
        each = -(-steps // callers)
        states = [self._step.first() for _ in range(callers)]
        with ExitStack() as stack:
            helpers = self._helpers(stack)
            stack.enter_context(restless_beside(self._conditions.restless))
            stack.enter_context(restless_threads(self._conditions.restless_threads))
            pieces = [each for each in self._pauses if any(each)]
            is_awaited = self._conditions.awaited_ms > 0
            sleep = stack.enter_context(thread_awaited(pieces if is_awaited else []))
            calls = stack.enter_context(fed(self._step.calls))
            tell = [each.tell for each in helpers]
            begin = time.perf_counter()
            if callers == 1:
                self._steps(calls, each, states[0], sleep, tell)
            else:
                threads = [
                    threading.Thread(target=self._steps, args=(calls, each, state, sleep, tell))
                    for state in states
                ]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
            for helper in helpers:
                helper.caught_up()
            took_s = time.perf_counter() - begin
        return each * callers, took_s

    def _helpers(self, stack: ExitStack) -> list[Beside]:
        """Those who work for each step in other threads and processes."""
        conditions = self._conditions
        in_thread = thread_beside(conditions.threads_ms, sets_pace=conditions.threads_set_pace)
        in_processes = processes_beside(
            conditions.children_ms,
            set_pace=conditions.children_set_pace,
            count=conditions.children,
        )
        beside = [stack.enter_context(each) for each in (in_thread, in_processes)]
        return [each for each in beside if each is not None]

    def _steps(
        self,
        made: Sequence[Called],
        count: int,
        latest: Outputs,
        sleep: Callable[[float], object],
        tell: Sequence[Any],
    ) -> None:
        """Make the calls of so many steps, and wait until all that they returned is computed."""
        calls = list(enumerate(zip(made, self._spin_ns, self._pauses, strict=True)))
        last, waits_after = len(calls) - 1, self._waits_after
        every, overlap_ns = self._every, self._overlap_ns
        for number in range(1, count + 1):
            waits = every > 0 and number % every == 0
            for place, (call, spin_ns, pause) in calls:
                if spin_ns:
                    spin(spin_ns)
                if any(pause):
                    sleep(pause[1])
                latest[place] = call(latest)
                if waits and place in waits_after and place != last:
                    read(latest[place])
            for each in tell:
                each()
            if overlap_ns:
                spin(overlap_ns)
            if waits and last in waits_after:
                read(latest[last])
        wait_for(latest)


def overlapping(single_s: float, steps: int, took_s: float) -> float:
    """Of a step, the part in which the host works on the next one while the device computes: before
    the first of some steps the device is idle, and after the last one the host. `single_s`: what
    one takes by itself; `took_s`: what so many take, two or more.
    """
    each_s = (took_s - single_s) / (steps - 1)
    return min(1.0, max(0.0, single_s / each_s - 1)) if each_s > 0 else 1.0


def wait_for(latest: Outputs) -> None:
    """Wait until all is computed that was not donated to a later call."""
    arrays = [each for results in latest for each in results if each is not None]
    jax.block_until_ready([each for each in arrays if not each.is_deleted()])


def oversleep_s() -> float:
    """How much later than asked for a thread wakes up here."""
    found = []
    for _ in range(SLEEPS):
        begin = time.perf_counter()
        time.sleep(SLEEP_S)
        found.append(time.perf_counter() - begin - SLEEP_S)
    return max(0.0, median(found))


def pauses_of(conditions: Conditions, count: int) -> list[tuple[int, float]]:
    """Before each call: nanoseconds that another thread works while the host waits for it, and
    seconds of sleep.
    """
    slept_ms = sum(conditions.sleep_ms)
    if slept_ms <= 0:
        return [(0, 0.0)] * count
    late_s, worked = oversleep_s(), conditions.awaited_ms / slept_ms
    return [
        (round(worked * each * 1e6), max(0.0, (1 - worked) * each / 1e3 - late_s))
        for each in padded(conditions.sleep_ms, count)
    ]


def padded(values: tuple[float, ...], count: int) -> list[float]:
    """The values, and zeros up to so many."""
    return [*values, *[0.0] * (count - len(values))]


def read(results: tuple[Any, ...]) -> None:
    """Wait for the smallest of a call's results, and fetch it."""
    arrays = [each for each in results if each is not None]
    if arrays:
        smallest = min(arrays, key=lambda each: each.size)
        is_key = jax.dtypes.issubdtype(smallest.dtype, jax.dtypes.prng_key)
        jax.block_until_ready(smallest) if is_key else np.asarray(smallest)
