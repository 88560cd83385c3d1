"""One pair of a comparison: the baseline twice and the candidate, alive together, run in turn."""

import math
import random
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import fmean

from perfdoctor.bench.launches import Side, Timing
from perfdoctor.bench.metrics import KINDS
from perfdoctor.processes import Ward
from perfdoctor.schema.benchmark import LaunchRecord
from perfdoctor.schema.fix import Change
from perfdoctor.trials.copies import Copy, slice_s_of, warm_up
from perfdoctor.trials.live import OutOfTime, PlayerEnded
from perfdoctor.trials.statistics import trimmed_mean

SLICE_S, TIMED_S, FEWEST_ROUNDS = 0.1, 3.6, 6
"""Many short slices: neighbours share the machine's drifts. In 3.6 s of each copy, slices of 40 to
150 ms left 1 to 2 % of noise in a pair, as much as there was at all (steps of 1 to 7 ms)."""
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
        copies, launched_ns = start(stack, ward, sides, until)
        launched = zip(copies, sides, launched_ns, strict=True)
        timings = [Timing(copy, side, at_ns) for copy, side, at_ns in launched]
        rounds = by_turns(copies, sides, until)
        own = [timing.meanwhile().own_cores for timing in timings]
        records = [
            timing.record(beside=sum(own) - used) for timing, used in zip(timings, own, strict=True)
        ]
    found = {
        kind.name: differences([math.log(kind.of(each)) for each in records])
        for kind in KINDS
        if all(kind.of(each) > 0 for each in records)
    }
    columns = zip(*(differences(logs) for logs in rounds), strict=True)
    contrast, control = (trimmed_mean(column)[0] for column in columns)
    found[STEP_TIME] = contrast, control
    return Pair(
        contrasts={name: pair[0] for name, pair in found.items()},
        controls={name: pair[1] for name, pair in found.items()},
        candidate=records[-1],
        baselines=tuple(records[:-1]),
    )


def start(
    stack: ExitStack, ward: Ward, sides: Sequence[Side], until: float
) -> tuple[list[Copy], list[int]]:
    """A copy of each side, warm and suspended, and the instants of their launches, nanoseconds.

    They start one after another, in random order: their compilation is timed too, and two that
    compile at the same time differ by up to a half (measured on two cores).
    """
    started: dict[int, tuple[Copy, int]] = {}
    for number in random.sample(range(len(sides)), len(sides)):
        side, launched_ns = sides[number], time.monotonic_ns()
        copy = stack.enter_context(Copy(ward, side.launch, Change(), side.function))
        warm_up([copy], until)
        if not copy.tells_steps:
            raise PlayerEnded("the step is no function that the program itself has jitted")
        started[number] = copy, launched_ns
    ordered = [started[number] for number in range(len(sides))]
    return [copy for copy, _ in ordered], [at_ns for _, at_ns in ordered]


def by_turns(copies: Sequence[Copy], sides: Sequence[Side], until: float) -> list[list[float]]:
    """Round by round, the logarithm of each copy's step time; a round is a slice of each, in random
    order.
    """
    slice_s = max(slice_s_of(copy, SLICE_S) for copy in copies)
    for _ in range(max(FEWEST_ROUNDS, round(TIMED_S / slice_s))):
        if time.monotonic() + slice_s * len(copies) > until:
            raise OutOfTime("the budget ended before the pair was complete")
        for copy in random.sample(copies, len(copies)):
            copy.run(slice_s)
    seconds = [[(end - begin) / 1e9 for begin, end in copy.slices[1:]] for copy in copies]
    made = [copy.steps_in_slices()[1:] for copy in copies]  # the first slice is the start
    size = rounds_as_one(made)
    columns = [
        step_logs(times, steps, size, side.stride)
        for times, steps, side in zip(seconds, made, sides, strict=True)
    ]
    return [list(logs) for logs in zip(*columns, strict=True)]


def rounds_as_one(made: Sequence[Sequence[float]]) -> int:
    """How many rounds to take together, so that each copy made steps in them: a slice may fall into
    an evaluation, or into a checkpoint. `made`: by copy, the steps in each of its slices.
    """
    count = len(made[0])
    for size in range(1, count // 2 + 1):
        if all(total > 0 for steps in made for total in totals(steps, size)):
            return size
    raise PlayerEnded("it made no step in half of the time")


def totals(values: Sequence[float], size: int) -> list[float]:
    """Of so many of them at a time; what remains at the end is left out."""
    return [sum(values[i : i + size]) for i in range(0, len(values) - size + 1, size)]


def step_logs(
    seconds: Sequence[float], made: Sequence[float], size: int, stride: float
) -> list[float]:
    """Of so many slices at a time: the logarithm of the seconds that a step took."""
    both = zip(totals(seconds, size), totals(made, size), strict=True)
    return [math.log(time_s / steps * stride) for time_s, steps in both]


def differences(logs: Sequence[float]) -> tuple[float, float]:
    """Contrast and control of baseline, baseline again, candidate."""
    one, again, other = logs
    return other - fmean((one, again)), again - one
