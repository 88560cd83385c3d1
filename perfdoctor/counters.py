"""The counters that a worker of a trial shares with us, as its own process writes them.

A worker is a process that counts its steps and rests when it is asked to: a script with code of
ours in it, or a program of ours. We read the counters by `perfdoctor.trials.shared_counters`. Only
the standard library is imported here: what is imported in a worker is part of its start.

Numbers of 64 bits: the steps so far (or calls, where calls are counted), the compilations so far
and what they took in nanoseconds; whether the worker is asked to rest, and since when it does; the
samples of a step, if it tells them; begin and end of the newest pauses, in which it was suspended
where it was; and the instants of the newest steps; each of the last two in its place modulo what is
kept. Instants are those of `time.monotonic_ns`.
"""

import mmap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

STEPS, EVERY = "counters", "counters-of-all"
"""Files in the folder of a worker: its steps, and the calls of all that a script has jitted."""
CALLS, COMPILES, COMPILING_NS, REST_AT, RESTS_SINCE_NS, SAMPLES, PAUSES, FIRST_PAUSE = range(8)
"""REST_AT: the number of calls after which it is to rest; 0 for never."""
PAUSES_KEPT = 1 << 13
"""Pauses that are kept: those of a start of six minutes, in turns of a twentieth of a second."""
FIRST = FIRST_PAUSE + 2 * PAUSES_KEPT
"""Where the instants of the steps begin, behind the pauses, of which each takes two numbers."""
KEPT = 1 << 18
"""Calls whose instants are kept: a slice of 10 s with steps of 40 µs."""
SIZE_BYTES = 8 * (FIRST + KEPT)
"""The size of the file: each number takes eight bytes."""
REST_POLL_S = 2e-4
"""Seconds between two looks at whether a worker that rests may go on."""
PHASES = "/jax/core/compile/"
"""What the names of the events begin with by which jax.monitoring tells of compilations."""
COMPILED = PHASES + "backend_compile_duration"
"""The event at the end of a program's compilation by XLA."""


def opened(folder: Path, name: str) -> memoryview:
    """The worker's side of counters that lie in its folder."""
    with (folder / name).open("r+b") as file:
        return memoryview(mmap.mmap(file.fileno(), SIZE_BYTES)).cast("q")


def write(counters: memoryview) -> None:
    """Add a call, now."""
    calls = counters[CALLS]
    counters[FIRST + calls % KEPT] = time.monotonic_ns()
    counters[CALLS] = calls + 1


def steps(counters: memoryview) -> Iterator[int]:
    """The numbers of the steps to make, each counted as it begins, until we are to rest: one at
    least, as `SharedCounters.ask_to_rest` has it.
    """
    while True:
        write(counters)
        yield counters[CALLS] - 1
        if is_to_rest(counters):
            return


def rest_if_asked(counters: memoryview, outputs: Any, wait: Callable[[Any], object]) -> None:
    """Rest where that is asked, once `outputs` are computed, until we are let go on; we are
    suspended meanwhile.
    """
    if is_to_rest(counters):
        wait(outputs)
        rest(counters)


def rest(counters: memoryview) -> None:
    """Rest, with nothing left to compute, until we are let go on, or are asked anew before that."""
    counters[RESTS_SINCE_NS] = time.monotonic_ns()
    while is_to_rest(counters) and counters[RESTS_SINCE_NS]:
        time.sleep(REST_POLL_S)


def is_to_rest(counters: memoryview) -> bool:
    """Whether as many calls were made as were to be made."""
    return bool(0 < counters[REST_AT] <= counters[CALLS])


def paused_ns(counters: memoryview, begin_ns: int, end_ns: int) -> int:
    """How long the worker was suspended between two instants, as far as pauses are kept."""
    found, count = 0, counters[PAUSES]
    for number in range(count - 1, max(0, count - PAUSES_KEPT) - 1, -1):
        place = FIRST_PAUSE + 2 * (number % PAUSES_KEPT)
        if counters[place + 1] <= begin_ns:
            break  # so did all before
        found += max(0, min(end_ns, counters[place + 1]) - max(begin_ns, counters[place]))
    return found


class Compiling:
    """Counts compilations, and the time in which something was traced, lowered or compiled, but for
    pauses of the worker: a listener for `jax.monitoring`.

    Phases contain each other: a jitted function is traced while another one is.
    """

    def __init__(self, counters: memoryview) -> None:
        self._counters = counters
        self._phases: list[tuple[int, int]] = []
        """When each one that no other contains began, and what it took; nanoseconds."""

    def __call__(self, name: str, seconds: float, **details: Any) -> None:
        if not name.startswith(PHASES):
            return
        end = time.monotonic_ns()
        begin = end - int(seconds * 1e9)
        while self._phases and self._phases[-1][0] >= begin:
            self._counters[COMPILING_NS] -= self._phases.pop()[1]
        took = end - begin - paused_ns(self._counters, begin, end)
        self._phases.append((begin, took))
        self._counters[COMPILING_NS] += took
        self._counters[COMPILES] += name == COMPILED
