"""One pair of a comparison: the baseline twice and the candidate, alive together, run in turn."""

import math
import random
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import fmean

from perfdoctor.bench.launches import Side, Timing, fresh
from perfdoctor.bench.metrics import KINDS
from perfdoctor.processes import Ward
from perfdoctor.schema.benchmark import LaunchRecord
from perfdoctor.trials.copies import Copy, Ran, steps_of_a_slice, warm_up_by_turns
from perfdoctor.trials.live import OutOfTime, PlayerEnded

SLICE_S, TIMED_S, FEWEST_ROUNDS = 0.1, 3.6, 6
"""Many short slices: neighbours share the machine's drifts. In 3.6 s of each copy they leave 1 to
2 % of noise in a pair of steps that fit caches, 3 to 5 % of larger ones; the means of all time no
more than trimmed ones."""
COMPILING_TIMED_S, RECURS = 12.0, 2
"""Of a program that compiles now and then, so that each copy does so: in so many of its slices. The
first evaluation compiles once."""
STEP_TIME = "step_time"


@dataclass(frozen=True)
class Pair:
    """By metric, the difference of the logarithms: 0.05 is 5 % more."""

    contrasts: dict[str, float]
    """The candidate against the mean of both baselines."""
    controls: dict[str, float]
    """The second baseline against the first."""
    candidate: LaunchRecord
    baselines: tuple[LaunchRecord, ...]


def play(ward: Ward, baseline: Side, candidate: Side, until: float) -> Pair:
    """Three fresh processes, suspended and resumed in turn. Raises PlayerEnded.

    `until`: instant of time.monotonic() by which it has to be over.
    """
    sides = (baseline, baseline, candidate)
    with ExitStack() as stack:
        copies = start(stack, ward, sides, until)
        timings = [Timing(copy, side) for copy, side in zip(copies, sides, strict=True)]
        step_logs = by_turns(copies, until)
        own = [timing.meanwhile().own_cores for timing in timings]
        records = [
            timing.record(beside=sum(own) - used) for timing, used in zip(timings, own, strict=True)
        ]
    found = {
        kind.name: differences([math.log(kind.of(each)) for each in records])
        for kind in KINDS
        if all(kind.of(each) > 0 for each in records)
    }
    found[STEP_TIME] = differences(step_logs)
    return Pair(
        contrasts={name: pair[0] for name, pair in found.items()},
        controls={name: pair[1] for name, pair in found.items()},
        candidate=records[-1],
        baselines=tuple(records[:-1]),
    )


def start(stack: ExitStack, ward: Ward, sides: Sequence[Side], until: float) -> list[Copy]:
    """A copy of each side, warm and suspended. They start by turns, for their compilation is timed
    too: two that compile at the same time, or one after another, differ by up to a half on two
    shared cores.
    """
    copies = []
    for side in sides:
        copy = stack.enter_context(fresh(ward, side, until))
        copy.pause()
        copies.append(copy)
    warm_up_by_turns(copies, until)
    if not all(copy.tells_steps for copy in copies):
        raise PlayerEnded("the step is no function that the program itself has jitted")
    return copies


def by_turns(copies: Sequence[Copy], until: float) -> list[float]:
    """Of each copy the logarithm of its step time, in seconds, over all rounds; a round is a slice
    of each, in random order.

    All of its time counts, also what few slices hold: a checkpoint, or a compilation each epoch.
    """
    steps = steps_of_a_slice(copies, SLICE_S)
    rounds: list[list[float]] = []
    compiling = dict.fromkeys(copies, 0)
    while not enough(rounds, recompiles=max(compiling.values()) >= RECURS):
        longest_s = max((max(each) for each in rounds), default=0.0)
        if time.monotonic() + longest_s * len(copies) > until:
            raise OutOfTime("the budget ended before the pair was complete")
        for copy in random.sample(copies, len(copies)):
            before = copy.compiles
            copy.run(steps[copy])
            compiling[copy] += copy.compiles > before
        rounds.append([copy.slices[-1].seconds for copy in copies])
    return [step_log(copy.slices[-len(rounds) :]) for copy in copies]


def enough(rounds: Sequence[Sequence[float]], *, recompiles: bool) -> bool:
    """Whether the copies ran for long enough; `rounds`: the seconds of each one's slice."""
    timed_s = sum(fmean(each) for each in rounds)
    wanted_s = COMPILING_TIMED_S if recompiles else TIMED_S
    return len(rounds) >= FEWEST_ROUNDS and timed_s >= wanted_s


def step_log(slices: Sequence[Ran]) -> float:
    """The logarithm of the seconds that a step took; PlayerEnded if there was none."""
    seconds, steps = sum(each.seconds for each in slices), sum(each.steps for each in slices)
    if not steps:
        raise PlayerEnded(f"it made no step in {seconds:.0f} s")
    return math.log(seconds / steps)


def differences(logs: Sequence[float]) -> tuple[float, float]:
    """Contrast and control of baseline, baseline again, candidate."""
    one, again, other = logs
    return other - fmean((one, again)), again - one
