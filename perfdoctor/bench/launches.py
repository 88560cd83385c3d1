"""Fresh launches of a target, each timed while nothing observes it."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

import numpy as np

from perfdoctor.observe import load
from perfdoctor.processes import ProcessGroups
from perfdoctor.schema.benchmark import LaunchRecord
from perfdoctor.schema.fix import Change
from perfdoctor.schema.launch import Launch
from perfdoctor.schema.surroundings import Load
from perfdoctor.trials.live import WorkerEnded
from perfdoctor.trials.pair import warm_up
from perfdoctor.trials.worker import Ran, Worker, calls_of

TIMED_S = 3.0
"""Seconds of each launch in which its steps are timed, behind import, compilation and warm-up."""
FEWEST_STEPS = 20
"""Steps that a launch has to make while it is timed: fewer tell no mean."""
AHEAD = 3.0
"""The factor of the usual time between two calls by which others are longer, or shorter, where
calls are dispatched ahead: so much remains to be computed at the end of a slice; where each result
is waited for, it is about one step."""
AGREEMENT = 0.1
"""The difference between the mean step times of a launch's halves, as a logarithm, up to which it
is called steady: 0.1 is about 10 %."""
SHAPE = 60
"""Points of the plot of a launch's steps."""


@dataclass(frozen=True)
class Side:
    """What is measured: a program and its step."""

    launch: Launch
    function: str
    """The jitted function whose calls make the steps."""
    stride: int = 1
    """Its calls a step."""


class Timing:
    """A worker of a side from its warm-up on: what it had done until then, and does while timed."""

    def __init__(self, worker: Worker, side: Side) -> None:
        self._worker, self._stride = worker, side.stride
        self._compiles, self._compile_s = worker.compiles, worker.compiling_s
        second = min(side.stride, worker.counters.calls - 1)
        self._first_step_s = worker.ran_s(worker.counters.since(0)[second])
        self._slices = len(worker.slices)
        self._before = load.read(worker.process)

    def meanwhile(self) -> Load:
        """What ran since then."""
        return load.between(self._before, load.read(self._worker.process))

    def record(self, beside: float = 0.0) -> LaunchRecord:
        """After it was timed; `beside`: cores that were used by workers which ran in turn with it.

        Raises:
            WorkerEnded: it made too few steps to tell.
        """
        worker, meanwhile = self._worker, self.meanwhile()
        ran = worker.slices[self._slices :]
        calls = worker.counters.since(0)
        times_ms = waits_shared([step_times_ms(calls, [each], self._stride) for each in ran])
        if len(times_ms) < 2:
            raise WorkerEnded(f"it made {len(times_ms)} steps in {meanwhile.seconds:.0f} s")
        ran_s = sum(each.seconds for each in ran)
        return LaunchRecord(
            steps=len(times_ms),
            mean_ms=fmean(times_ms),
            median_ms=median(times_ms),
            p95_ms=float(np.quantile(times_ms, 0.95)),
            cpu_ms=meanwhile.own_cores * meanwhile.seconds / ran_s * fmean(times_ms),
            compiles=self._compiles,
            compile_s=self._compile_s,
            first_step_s=self._first_step_s,
            peak_rss_bytes=worker.peak_rss_bytes(),
            steady=not worker.compiles_for_ever and halves_agree(times_ms),
            other_cores=max(0.0, meanwhile.other_cores - beside),
            throttled_ms=meanwhile.throttled_ms or 0.0,
            shape_ms=shape_of(times_ms),
        )


def fresh(groups: ProcessGroups, side: Side, until: float) -> Worker:
    """A worker of a side, just launched."""
    attach = calls_of(side.function, Change())
    return Worker(groups, side.launch, attach, until, stride=side.stride)


def measured(groups: ProcessGroups, side: Side, until: float) -> LaunchRecord:
    """One launch by itself. Raises WorkerEnded."""
    with fresh(groups, side, until) as worker:
        warm_up([worker], until)
        timing = Timing(worker, side)
        worker.run_for(TIMED_S)
        if (made := int(worker.slices[-1].steps)) < FEWEST_STEPS:
            worker.run(FEWEST_STEPS - made)
        return timing.record()


def step_times_ms(calls: Sequence[int], slices: Sequence[Ran], stride: int) -> list[float]:
    """What each step of the slices took; those of a slice take all of its time.

    A slice begins and ends at rest: its last step ends with its computation, not with the call of
    the next. `calls`: the instants at which the step's function was called, in nanoseconds,
    `stride` times a step.
    """
    found = []
    for each in slices:
        inside = calls[bisect_left(calls, each.begin_ns) : bisect_right(calls, each.end_ns)]
        edges = [each.begin_ns, *inside[stride::stride], each.end_ns]
        if inside:
            found += [(after - before) / 1e6 for before, after in pairwise(edges)]
    return found


def waits_shared(slices_ms: Sequence[Sequence[float]]) -> list[float]:
    """What the steps took, of times from call to call.

    Where calls are dispatched ahead, some take next to no time and a later one waits for their
    computation: each of them is given the same part of both.
    """
    slices_ms = [each for each in slices_ms if each]
    if not slices_ms or median(each[-1] / fmean(each) for each in slices_ms) < AHEAD:
        return [ms for each in slices_ms for ms in each]
    typical_ms = fmean(ms for each in slices_ms for ms in each)
    return [ms for each in slices_ms for ms in shared(each, typical_ms)]


def shared(times_ms: Sequence[float], typical_ms: float) -> list[float]:
    """The times of a slice, each wait shared with the calls ahead of it."""
    found, ahead = list(times_ms), list[int]()
    for place, ms in enumerate(times_ms):
        if ms < typical_ms / AHEAD:
            ahead.append(place)
        elif ms > typical_ms * AHEAD:
            ahead.append(place)
            part = fmean(times_ms[each] for each in ahead)
            for each in ahead:
                found[each] = part
            ahead = []
    return found


def halves_agree(times_ms: Sequence[float]) -> bool:
    """Whether the second half of the steps took about as long as the first."""
    middle = len(times_ms) // 2
    first, second = fmean(times_ms[:middle]), fmean(times_ms[middle:])
    return abs(math.log(second / first)) < AGREEMENT


def shape_of(times_ms: Sequence[float]) -> tuple[float, ...]:
    """Means of as many runs of consecutive steps as the plot has points."""
    parts = np.array_split(np.asarray(times_ms), min(SHAPE, len(times_ms)))
    return tuple(round(float(part.mean()), 4) for part in parts)
