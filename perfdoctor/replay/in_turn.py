"""A captured step, timed in turn with the program that still runs, and with what is added to it."""

import math
from collections.abc import Callable, Sequence
from statistics import median, stdev

from perfdoctor.observe.in_turn import Running
from perfdoctor.replay.slices import SLICE_S, a_step_ms, slice_s
from perfdoctor.schema.capture import Replayed

TURNS, MOST_TURNS, TURN_S = 5, 11, 0.4
"""Turns of each, as many as that where they differ, and seconds of the replayed step's at least.
The program's takes as long."""
NEAR = 0.03
"""The standard error, as a logarithm, with which it is told well enough: a third of FAITHFUL."""
MEDIANS = math.sqrt(math.pi / 2)
"""The standard error of a median over that of the mean, of normally distributed values."""
Run = Callable[[float, float], Replayed]
"""Makes steps for about so many seconds; it ends at an instant of time.monotonic(). WorkerEnded."""


def turns(run: Run, running: Running) -> list[float]:
    """Of each turn, the logarithm of a replayed step's time over one of the program's, which rests
    meanwhile; more of them where the machine is restless.
    """
    found: list[float] = []
    with running.at_rest():  # it compiles
        seconds = max(TURN_S, slice_s(run(SLICE_S, running.until)))
    while len(found) < MOST_TURNS and not are_enough(found):
        with running.at_rest():
            replayed_ms = a_step_ms(run(seconds, running.until))
        in_run_ms = running.step_ms()
        if in_run_ms is None:
            break
        found.append(math.log(replayed_ms / in_run_ms))
    return found


def are_enough(found: Sequence[float]) -> bool:
    """Whether their median tells it well enough."""
    return len(found) >= TURNS and MEDIANS * stdev(found) / math.sqrt(len(found)) <= NEAR


def times_as_long(one: Run, other: Run, rounds: int, until: float) -> float:
    """How many times as long steps of the one take as those of the other; in turn."""
    seconds = max(slice_s(run(SLICE_S, until)) for run in (one, other))
    return median(
        a_step_ms(one(seconds, until)) / a_step_ms(other(seconds, until)) for _ in range(rounds)
    )
