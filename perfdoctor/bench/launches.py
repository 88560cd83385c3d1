"""Fresh launches of a target, each timed while nothing observes it."""

import math
import time
from collections.abc import Sequence
from statistics import fmean, median

import numpy as np

from perfdoctor.observe import load
from perfdoctor.processes import Ward
from perfdoctor.schema.benchmark import LaunchRecord
from perfdoctor.schema.fix import Change
from perfdoctor.schema.launch import Launch
from perfdoctor.trials.copies import Copy, step_s, warm_up
from perfdoctor.trials.duet import AGREEMENT
from perfdoctor.trials.live import PlayerEnded

TIMED_S = 3.0
"""Of each launch: the rest is import, compilation and warm-up."""
FEWEST_STEPS = 20
LONGEST_S = 15.0
SHAPE = 60
"""Points of the plot."""


def measured(
    ward: Ward, launch: Launch, function: str, stride: float, until: float
) -> LaunchRecord:
    """One launch; `stride`: calls of the function a step. Raises PlayerEnded."""
    began_ns = time.monotonic_ns()
    with Copy(ward, launch, Change(), function) as copy:
        warm_up([copy], until)
        compiles, compile_s, calls = copy.compiles, copy.compiling_s, copy.tally.calls
        before = load.read(copy.process)
        copy.run(min(LONGEST_S, max(TIMED_S, FEWEST_STEPS * stride * step_s(copy))))
        meanwhile = load.between(before, load.read(copy.process))
        times_ms = step_times_ms(copy.tally.since(calls), stride)
        if len(times_ms) < 2:
            raise PlayerEnded(f"it made {len(times_ms)} steps in {meanwhile.seconds:.0f} s")
        second_ns = copy.tally.since(0)[math.ceil(stride)]
        return LaunchRecord(
            steps=len(times_ms),
            mean_ms=fmean(times_ms),
            median_ms=median(times_ms),
            p95_ms=float(np.quantile(times_ms, 0.95)),
            cpu_ms=meanwhile.own_cores * fmean(times_ms),
            compiles=compiles,
            compile_s=compile_s,
            first_step_s=(second_ns - began_ns) / 1e9,
            peak_rss_bytes=copy.peak_rss_bytes(),
            steady=not copy.compiles_for_ever and halves_agree(times_ms),
            other_cores=meanwhile.other_cores,
            throttled_ms=meanwhile.throttled_ms or 0.0,
            shape_ms=shape_of(times_ms),
        )


def step_times_ms(calls: Sequence[int], stride: float) -> list[float]:
    """From the begin of each step to that of the next; of `stride` calls each."""
    begins = np.asarray(calls, np.int64)[:: max(1, round(stride))]
    return [float(each) for each in np.diff(begins) / 1e6]


def halves_agree(times_ms: Sequence[float]) -> bool:
    """Whether the second half of the steps took about as long as the first."""
    middle = len(times_ms) // 2
    first, second = fmean(times_ms[:middle]), fmean(times_ms[middle:])
    return abs(math.log(second / first)) < AGREEMENT


def shape_of(times_ms: Sequence[float]) -> tuple[float, ...]:
    """Means of as many runs of consecutive steps as the plot has points."""
    parts = np.array_split(np.asarray(times_ms), min(SHAPE, len(times_ms)))
    return tuple(round(float(part.mean()), 4) for part in parts)
