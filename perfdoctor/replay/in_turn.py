"""A captured step, timed in turn with the program that still runs, and with what is added to it."""

import math
import time
from collections.abc import Callable, Sequence
from statistics import median, stdev

from perfdoctor.observe.in_turn import Running
from perfdoctor.replay.slices import SLICE_S, a_step_ms, slice_s
from perfdoctor.schema.capture import Replayed
from perfdoctor.trials.statistics import FAITHFUL

TURNS, MOST_TURNS, TURN_S = 5, 11, 0.4
"""Turns of each, as many as that where they differ, and seconds of the replayed step's at least.
The program's takes as long."""
TURNS_S = 20.0
"""What they may take in all, once the replayed step is compiled."""
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
    last = min(running.until, time.monotonic() + TURNS_S) - 2 * seconds
    while len(found) < MOST_TURNS and not are_enough(found) and time.monotonic() < last:
        with running.at_rest():
            replayed_ms = a_step_ms(run(seconds, running.until))
        in_run_ms = running.step_ms()
        if in_run_ms is None:
            break
        found.append(math.log(replayed_ms / in_run_ms))
    return found


def was_disturbed(found: Sequence[float]) -> bool:
    """Whether the replayed step, by itself, took longer than the program's, which does the same and
    more: by more than a measurement may be off. Then something slowed the replay and not the
    program. In one of 14 checks of the reference loop the step took 43 ms by itself and 21 ms in
    the program, and 19 ms by itself right after that.
    """
    return bool(found) and median(found) > math.log(1 + FAITHFUL)


def are_enough(found: Sequence[float]) -> bool:
    """Whether their median tells it well enough."""
    return len(found) >= TURNS and MEDIANS * stdev(found) / math.sqrt(len(found)) <= NEAR


def beside_then_ms(
    beside: Run, by_itself: Run, host_ms: float, then_ms: float, rounds: int, until: float
) -> float:
    """What a step took beside its host's own part, of `host_ms`, when the device took `then_ms` for
    it; by rounds of now, of both in turn.
    """
    seconds = max(slice_s(run(SLICE_S, until)) for run in (beside, by_itself))
    found_ms: list[float] = []
    for _ in range(rounds):
        beside_ms = a_step_ms(beside(seconds, until))
        alone_ms = a_step_ms(by_itself(seconds, until))
        found_ms.append(as_then_ms(beside_ms, alone_ms, host_ms, then_ms))
    return median(found_ms)


def as_then_ms(beside_ms: float, alone_ms: float, host_ms: float, then_ms: float) -> float:
    """`beside_ms`, as if the device took `then_ms` for the step and not `alone_ms`.

    The host works and sleeps for as long as it was seen to, whatever the device takes; so of the
    device only that part counts which the host does not overlap.
    """
    exposed = 1.0 if host_ms <= alone_ms else min(1.0, max(0.0, (beside_ms - host_ms) / alone_ms))
    return beside_ms + exposed * (then_ms - alone_ms)
