"""What a trace adds to the steps in its window, so that it can be taken away from them.

A trace slows a program down. On the CPU each small operation is two events, and where a step frees
and allocates megabytes, events settle in the gaps, so that each step is given memory that the
kernel has to clear: steps of tests/clinic take 1.0 to 5 times as long while they are traced. XLA
numbers the runs of a program, traced or not. So a preview before the window tells how many runs lay
between the two, and how long one takes that is not traced.
"""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from perfdoctor.observe.digest.executable import module_name
from perfdoctor.observe.digest.intervals import (
    Instants,
    Intervals,
    complement,
    contains,
    intersection,
    total_ms,
)
from perfdoctor.observe.digest.runs import Operation, Run, runs_between
from perfdoctor.observe.digest.timeline import Timeline

FEWEST_RUNS = 5
"""Runs between preview and window, and in the window, that tell a mean."""
NEARLY_ALL = 0.9
"""The share of a function's runs in the window that must be of programs which ran in the preview
too. Of more programs, one for each shape of a batch, others may have run before the window than in
it."""
LEAST = 0.1
"""The least that a step may take without a trace, as a share of what it takes with one, 0.2 to 1 in
tests/clinic; where it seems to be less, the program did something else before."""

EVENT_MS = 1.5e-3
"""Milliseconds that an event costs at most (0.3 and 1.2 µs in two scripts of tests/clinic that
allocate little). What steps are longer besides, they are in all their parts: page faults, or a
machine that was slower just then."""


@dataclass(frozen=True)
class TracingOverhead:
    """What a trace costs the program."""

    share: float
    """What a step takes without a trace, of what it takes with one."""
    event_ms: float
    """Each event that makes a step longer; see `lengthening`."""
    rest_share: float
    """What steps take without a trace besides their events, as a share of what they take with
    one."""
    lengthening: Instants

    def net_ms(self, where: Intervals) -> float:
        """How long the intervals are together without the trace.

        What the host does while the device computes gets shorter with that: both share the cores,
        and the parts of either still make the whole.
        """
        traced_ms = total_ms(where)
        if self.share == 1:
            return traced_ms
        events_ms = self.event_ms * int(contains(where, self.lengthening).sum())
        return self.rest_share * max(LEAST * traced_ms, traced_ms - events_ms)


def overhead_of(
    preview: Timeline | None,
    seen: Timeline,
    function: str,
    usual_share: float,
    included: Intervals,
    told_share: float | None = None,
) -> TracingOverhead:
    """What the trace of steps adds to them: by what they took before it (`told_share`, as a share
    of what they take with it), or by a preview of the same program before.

    `usual_share`: what a step takes that is no outlier, as a share of the mean step. If an
    evaluation or a checkpoint lay between preview and window, the overhead comes out too low, and
    never too high. `included`: all the time of the steps that count.
    """
    lengthening = events_that_lengthen(seen, included)
    share = told_share
    if share is None and preview is not None:
        by_runs = untraced_share(preview, seen, function)
        share = by_runs / usual_share if by_runs is not None else None
    share = min(1.0, share) if share is not None else 1.0
    if share < LEAST:
        share = 1.0
    whole_ms = total_ms(included)
    event_ms = min(EVENT_MS, (1 - share) * whole_ms / max(1, len(lengthening)))
    rest_ms = max(LEAST * whole_ms, whole_ms - event_ms * len(lengthening))
    return TracingOverhead(share, event_ms, share * whole_ms / max(rest_ms, 1e-9), lengthening)


def events_that_lengthen(seen: Timeline, included: Intervals) -> Instants:
    """The events of the device where it computes, two an operation, and of the main thread where
    the device is idle: what both do at the same time makes a step longer only once.
    """
    busy = intersection(seen.busy, included)
    device = seen.operations[contains(busy, seen.operations)]
    host = seen.events[contains(complement(busy, included), seen.events)]
    return np.sort(np.concatenate([device, device, host]))


def untraced_share(preview: Timeline, seen: Timeline, function: str) -> float | None:
    """How long it takes from one run of a function's programs to the next between preview and
    window, as a share of what it takes in the window.

    None where it can't be told, since those that ran in the preview too, and often enough, do not
    make nearly all runs of the window.
    """
    programs: defaultdict[int, list[Operation]] = defaultdict(list)
    for each in seen.runs:
        if each.module == module_name(function):
            programs[each.program].append(each)
    made = told = before_a_ns = inside_a_ns = 0.0
    for operations in programs.values():
        common = [each for each in operations if each in preview.runs]
        # one that is not repeated within a run, if there is any
        chosen = min(common or operations, key=lambda each: (seen.runs[each].events, each.name))
        first, last, _ = seen.runs[chosen]
        inside = runs_between(first, last)
        made += inside
        if common and inside >= FEWEST_RUNS:
            earlier = preview.runs[chosen].last
            if runs_between(earlier, first) >= FEWEST_RUNS:
                told += inside
                before_a_ns += runs_a_ns(earlier, first)
                inside_a_ns += runs_a_ns(first, last)
    return inside_a_ns / before_a_ns if told and told >= NEARLY_ALL * made else None


def runs_a_ns(earlier: Run, later: Run) -> float:
    """How many runs of a program begin in a nanosecond."""
    return runs_between(earlier, later) / (later.begin_ns - earlier.begin_ns)
