"""One pair of a comparison: the baseline twice and the candidate, alive together, run in turn."""

import math
import random
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import fmean, median

from perfdoctor.bench.launches import Side, Timing, fresh, step_times_ms
from perfdoctor.bench.metrics import KINDS
from perfdoctor.processes import Ward
from perfdoctor.schema.benchmark import LaunchRecord
from perfdoctor.trials.copies import Copy, Ran, steps_of_a_slice, warm_up_by_turns
from perfdoctor.trials.live import OutOfTime, PlayerEnded
from perfdoctor.trials.statistics import trimmed_mean

SLICE_S, TIMED_S, FEWEST_ROUNDS = 0.1, 2.4, 6
"""Many short slices: neighbours share the machine's drifts. In 2.4 s of each copy they leave 0.4 to
0.8 % of noise in a launch of five programs on one core, of which most is the launch's own: 1.2 s
leave half as much again, 3.6 s hardly less."""
RARE, RARE_SHARE = 3.0, 0.1
"""So many times as long as is typical, and that part of a slice: a step with something else in it,
as a checkpoint, an evaluation or a compilation."""
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
        rounds = by_turns(copies, until)
        step_logs = [
            step_log(copy.slices[-rounds:], copy.tally.since(0), side.stride)
            for copy, side in zip(copies, sides, strict=True)
        ]
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


def by_turns(copies: Sequence[Copy], until: float) -> int:
    """Let each run until that is enough; in how many rounds, of a slice of each in random order."""
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
    return len(rounds)


def enough(rounds: Sequence[Sequence[float]], *, recompiles: bool) -> bool:
    """Whether the copies ran for long enough; `rounds`: the seconds of each one's slice."""
    timed_s = sum(fmean(each) for each in rounds)
    wanted_s = COMPILING_TIMED_S if recompiles else TIMED_S
    return len(rounds) >= FEWEST_ROUNDS and timed_s >= wanted_s


def step_log(slices: Sequence[Ran], calls: Sequence[int], stride: int) -> float:
    """The logarithm of the seconds that a step takes; PlayerEnded if there was none.

    Other programs on the machine slow some slices down by a fifth to a half: trimmed away, that
    leaves half of the noise, or less. What the program itself does rarely is no less its own, and
    counts in full; but for what lies in the last step of a slice, which also waits for all that was
    dispatched.

    `calls`: the instants at which the step's function was called, `stride` times a step.
    """
    steps = sum(each.steps for each in slices)
    if not steps:
        raise PlayerEnded(f"it made no step in {sum(each.seconds for each in slices):.0f} s")
    rare_s = rare_seconds([step_times_ms(calls, [each], stride)[:-1] for each in slices], slices)
    usual_s = [
        (each.seconds - rare) / each.steps
        for each, rare in zip(slices, rare_s, strict=True)
        if each.steps
    ]
    return math.log(trimmed_mean(usual_s)[0] + sum(rare_s) / steps)


def rare_seconds(times_ms: Sequence[Sequence[float]], slices: Sequence[Ran]) -> list[float]:
    """Of each slice: what some steps take beyond the typical; all of it, if it has no step."""
    typical_ms = median([ms for each in times_ms for ms in each] or [0.0])

    def of(own_ms: Sequence[float], ran: Ran) -> float:
        if not ran.steps:
            return ran.seconds
        least_ms = max(RARE * typical_ms, RARE_SHARE * ran.seconds * 1e3)
        return sum(ms - typical_ms for ms in own_ms if ms > least_ms) / 1e3

    return [of(own_ms, ran) for own_ms, ran in zip(times_ms, slices, strict=True)]


def differences(logs: Sequence[float]) -> tuple[float, float]:
    """Contrast and control of baseline, baseline again, candidate."""
    one, again, other = logs
    return other - fmean((one, again)), again - one
