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

SLICE_S, ROUNDS = 0.5, 6
"""What is left of the noise of slices is then below that between launches."""
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
        launched_ns = time.monotonic_ns()
        copies = [
            stack.enter_context(Copy(ward, side.launch, Change(), side.function)) for side in sides
        ]
        warm_up(copies, until)
        if not all(copy.tells_steps for copy in copies):
            raise PlayerEnded("the step is no function that the program itself has jitted")
        timings = [
            Timing(copy, side, launched_ns) for copy, side in zip(copies, sides, strict=True)
        ]
        rounds = by_turns(copies, sides, until)
        records = [timing.record() for timing in timings]
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


def by_turns(copies: Sequence[Copy], sides: Sequence[Side], until: float) -> list[list[float]]:
    """Round by round, the logarithm of each copy's step time; a round is a slice of each, in random
    order.
    """
    slice_s = max(slice_s_of(copy, SLICE_S) for copy in copies)
    for _ in range(ROUNDS):
        if time.monotonic() + slice_s * len(copies) > until:
            raise OutOfTime("the budget ended before the pair was complete")
        for copy in random.sample(copies, len(copies)):
            copy.run(slice_s)
    columns = [step_logs(copy, side.stride) for copy, side in zip(copies, sides, strict=True)]
    return [list(logs) for logs in zip(*columns, strict=True)]


def step_logs(copy: Copy, stride: float) -> list[float]:
    """Of each slice after the start: the logarithm of the seconds that a step took."""
    steps = copy.steps_in_slices()[1:]
    if min(steps) <= 0:
        raise PlayerEnded("it made no step in a slice")
    times = zip(copy.slices[1:], steps, strict=True)
    return [math.log((end - begin) / 1e9 / made * stride) for (begin, end), made in times]


def differences(logs: Sequence[float]) -> tuple[float, float]:
    """Contrast and control of baseline, baseline again, candidate."""
    one, again, other = logs
    return other - fmean((one, again)), again - one
