"""Where the time of steps went: each moment to what the host did, and whether the device idled."""

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from perfdoctor.observe.digest.executable import module_name
from perfdoctor.observe.digest.intervals import (
    Intervals,
    complement,
    contains,
    intersection,
    total_ms,
    union,
)
from perfdoctor.observe.digest.places import Activity, Code, waiting_library
from perfdoctor.observe.digest.timeline import Timeline
from perfdoctor.observe.digest.untraced import TracingOverhead
from perfdoctor.schema.recording import Frame, Recording
from perfdoctor.schema.run import Place

OP_BY_OP = 9
"""Dispatches a step from which on the step's function is one operation of many."""
INNER = re.compile(r"(\.<locals>\.<\w+>)+$")
"""Comprehensions and lambdas, which wait for the function around them."""
LONG_MS = 1.0
"""Where the host is in Python for longer, a sampler that wants the interpreter gets it; out of a
shorter time it seldom does, but in the dispatch that follows."""


def parts(
    timeline: Timeline,
    function: str,
    recording: Recording,
    overhead: TracingOverhead,
    included: Intervals,
    count: int,
) -> dict[str, object]:
    """The fields of `Steps` that divide the time of `count` steps, `included` in all."""
    gc = intersection(union([(c.start_ns, c.end_ns) for c in recording.collections]), included)
    wait = complement(gc, intersection(timeline.waits, included))
    calls = union(np.concatenate(list(timeline.dispatches.values())))
    dispatch = complement(union(np.concatenate([gc, wait])), intersection(calls, included))
    host = complement(union(np.concatenate([gc, wait, dispatch])), included)
    busy = intersection(timeline.busy, included)
    idle = complement(busy, included)
    lasts_long = host[:, 1] - host[:, 0] > LONG_MS * 1e6

    instants = np.asarray([instant for instant, _ in recording.samples], np.int64)
    numbers = np.asarray([number for _, number in recording.samples], np.int64)
    code = code_of(timeline, function, recording, count)
    activities = np.asarray([code.activity(stack) for stack in recording.stacks], object)
    sampled_as = activities[numbers] if len(numbers) else np.zeros(0, object)

    def share(which: npt.NDArray[np.bool_], where: Intervals) -> float:
        """The part of the host's time in `where` that belongs to these samples: by their share of
        all, for long stays in Python and for short ones, of which each has fewer, by themselves.
        """
        found_ms = 0.0
        for stays in (host[lasts_long], host[~lasts_long]):
            there = intersection(where, stays)
            seen = contains(there, instants)
            if seen.any():
                found_ms += float(which[seen].mean()) * total_ms(there)
        return found_ms / max(total_ms(where), 1e-9)

    def stacks_of(where: Intervals) -> list[list[Frame]]:
        return [recording.stacks[number] for number in numbers[contains(where, instants)]]

    def places(where: Intervals, activity: Activity | None = None) -> tuple[Place, ...]:
        chosen = contains(where, instants)
        if activity is not None:
            chosen &= sampled_as == activity
        return code.places([recording.stacks[number] for number in numbers[chosen]], sampled)

    of_jax = np.asarray([code.is_in_jax(stack) for stack in recording.stacks], bool)
    operating = of_jax & (activities == "other")
    reading = reads(code, recording.stacks, stacks_of(wait)) & (activities != "loading")
    exposed_host = intersection(host, idle)
    exposed_host_ms = overhead.net_ms(exposed_host)
    exposed_etl_ms = exposed_host_ms * share(sampled_as == "loading", exposed_host)
    exposed_logging_ms = exposed_host_ms * share(sampled_as == "logging", exposed_host)
    sampled = max(1, int(contains(included, instants).sum()))
    busy_ms = overhead.net_ms(busy) / count
    return {
        "device_busy_ms": busy_ms,
        "work_ms": {name: busy_ms * part for name, part in work_shares(timeline).items()},
        "exposed_etl_ms": exposed_etl_ms / count,
        "exposed_dispatch_ms": overhead.net_ms(intersection(dispatch, idle)) / count,
        "exposed_wait_ms": overhead.net_ms(intersection(wait, idle)) / count,
        "exposed_gc_ms": overhead.net_ms(intersection(gc, idle)) / count,
        "exposed_logging_ms": exposed_logging_ms / count,
        "exposed_other_ms": (exposed_host_ms - exposed_etl_ms - exposed_logging_ms) / count,
        "exposed_operations_ms": exposed_host_ms * share(operating[numbers], exposed_host) / count,
        "etl_ms": overhead.net_ms(host) * share(sampled_as == "loading", host) / count,
        "reading_ms": overhead.net_ms(host) * share(reading[numbers], host) / count,
        "dispatch_ms": overhead.net_ms(dispatch) / count,
        "wait_ms": overhead.net_ms(wait) / count,
        "gc_ms": overhead.net_ms(gc) / count,
        "etl_places": places(host, "loading"),
        "wait_places": places(wait),
        "waits_in": waiting_library(stacks_of(wait)),
        "logging_places": places(host, "logging"),
        "other_places": places(host, "other"),
    }


def reads(
    code: Code, stacks: Sequence[Sequence[Frame]], waiting: Sequence[Sequence[Frame]]
) -> npt.NDArray[np.bool_]:
    """Whether each stack is in a function of the user's that waits for results; one that calls the
    step does other things too. bool[stacks]
    """
    lines = [frame for stack in waiting if (frame := code.own_line(stack)) is not None]
    functions = {(file, INNER.sub("", name)) for file, _, name in lines} - code.way.keys()
    found = [any((file, name) in functions for file, _, name in stack) for stack in stacks]
    return np.asarray(found, bool)


def work_shares(timeline: Timeline) -> dict[str, float]:
    """The share of each jitted function in what all operations took; empty if that is not told."""
    whole_ms = sum(timeline.computed_ms.values())
    known = {name: timeline.computed_ms.get(module_name(name)) for name in timeline.dispatches}
    return {name: ms / whole_ms for name, ms in known.items() if ms}


def code_of(timeline: Timeline, function: str, recording: Recording, count: int) -> Code:
    """The user's code, and where in it the step is called: while it compiled, and sampled since."""
    own, calls = tuple(recording.own), timeline.dispatches[function]
    if sum(map(len, timeline.dispatches.values())) >= OP_BY_OP * count:
        return Code(own, seen=recording.stacks)  # the function is one operation of many
    instants = np.asarray([instant for instant, _ in recording.samples], np.int64)
    numbers = np.asarray([number for _, number in recording.samples], np.int64)
    during = np.unique(numbers[contains(calls, instants)])
    return Code(own, [*recording.calls.get(function, []), *(recording.stacks[n] for n in during)])
