"""What each thread and device did in a stretch of the traced window, as lanes of a picture."""

from collections.abc import Mapping, Sequence

import numpy as np

from perfdoctor.observe.digest.attribution import code_of
from perfdoctor.observe.digest.intervals import (
    NOTHING,
    Instants,
    Intervals,
    complement,
    contains,
    intersection,
    union,
)
from perfdoctor.observe.digest.places import Activity, Code
from perfdoctor.observe.digest.timeline import Timeline
from perfdoctor.schema.figures import Lane, Part, Span
from perfdoctor.schema.recording import Frame, Recording, SampledThread

MOST_SPANS = 800
"""Spans that a lane keeps, the longest."""
MOST_LANES = 4
"""Lanes of each kind that are kept."""
GAPS = 2000
"""A device's gaps that are shorter than the stretch over this are closed: it has one between any
two operations."""
NEAR_NS = 10_000_000
"""A thread is taken to do what a sample of it shows for so long before and after, at most."""
PARTS: dict[Activity, Part] = {"loading": "etl", "logging": "logging", "other": "other"}
"""The parts of a step, by what the main thread is busy with."""
PARKED = ("/threading.py", "/queue.py", "/selectors.py", "/socket.py", "/subprocess.py")
"""Files of Python's library in whose functions a thread does nothing but wait."""


def lanes_of(
    seen: Timeline, function: str, recording: Recording, count: int, within: Intervals
) -> tuple[Lane, ...]:
    """`within`: the stretch; `count`: of all steps of the window."""
    code = code_of(seen, function, recording, count)
    begin_ns = int(within[0, 0])
    main = main_thread(seen, recording, code, within)
    threads = [(each.name, beside(each, code, within)) for each in recording.others]
    working = [(name, parts) for name, parts in threads if any(map(len, parts.values()))]
    return (
        lane("main thread", "main", main, begin_ns),
        *devices(seen, within),
        *(lane(name, "loader", parts, begin_ns) for name, parts in working[:MOST_LANES]),
        *callers(seen, within),
        *copies(seen, within),
    )


def main_thread(
    seen: Timeline, recording: Recording, code: Code, within: Intervals
) -> dict[Part, Intervals]:
    """Each moment of the main thread once, as `attribution.parts` divides it."""
    gc = intersection(union([(c.start_ns, c.end_ns) for c in recording.collections]), within)
    wait = complement(gc, intersection(seen.waits, within))
    calls = union(np.concatenate(list(seen.dispatches.values())))
    dispatch = complement(union(np.concatenate([gc, wait])), intersection(calls, within))
    host = complement(union(np.concatenate([gc, wait, dispatch])), within)
    doing = [PARTS[code.activity(stack)] for stack in recording.stacks]
    parts: dict[Part, Intervals] = {"gc": gc, "wait": wait, "dispatch": dispatch}
    return parts | sampled(host, recording.samples, doing)


def sampled(
    stays: Intervals, samples: Sequence[tuple[int, int]], parts: Sequence[Part]
) -> dict[Part, Intervals]:
    """Stays in Python by what the nearest sample in any of them shows; `other` without samples.

    `parts`: by the number of a stack.
    """
    instants = np.asarray([instant for instant, _ in samples], np.int64)
    there = contains(stays, instants)
    if not there.any():
        return {"other": stays}
    of_sample = np.asarray([parts[number] for _, number in samples], object)[there]
    cells = around(instants[there])
    return {
        part: intersection(union(cells[of_sample == part]), stays)
        for part in dict.fromkeys(of_sample)
    }


def around(instants: Instants, reach_ns: int | None = None) -> Intervals:
    """The time that is nearest to each of the sorted instants, no farther than the reach."""
    middles = instants[:-1] + np.diff(instants) // 2
    far = np.iinfo(np.int64).max // 2
    cells = np.stack([np.append(-far, middles), np.append(middles, far)], axis=1)
    if reach_ns is None:
        return cells
    return np.stack(
        [
            np.maximum(cells[:, 0], instants - reach_ns),
            np.minimum(cells[:, 1], instants + reach_ns),
        ],
        axis=1,
    )


def beside(thread: SampledThread, code: Code, within: Intervals) -> dict[Part, Intervals]:
    """What a thread beside the main one worked on; nothing where it waited for work."""
    if not thread.samples:
        return {}
    doing = np.asarray([work_of(stack, code) for stack in thread.stacks], object)
    instants = np.asarray([instant for instant, _ in thread.samples], np.int64)
    cells, found = around(instants, NEAR_NS), doing[[number for _, number in thread.samples]]
    parts: tuple[Part, ...] = ("etl", "logging", "other")
    return {part: intersection(union(cells[found == part]), within) for part in parts}


def work_of(stack: Sequence[Frame], code: Code) -> Part | None:
    """What a thread beside the main one is at; None while it waits."""
    if not stack or stack[0][0].endswith(PARKED):
        return None
    if any(code.is_loading(frame) for frame in stack):
        return "etl"
    return PARTS[code.activity(stack)]


def devices(seen: Timeline, within: Intervals) -> list[Lane]:
    """When each device computed; all as one where the trace does not tell them apart."""
    gap_ns = int(within[0, 1] - within[0, 0]) // GAPS
    each = seen.busy_by_device or (seen.busy,)
    names = ["device"] if len(each) == 1 else [f"device {number}" for number in range(len(each))]
    return [
        lane(name, "device", {"device": closed(intersection(busy, within), gap_ns)}, within[0, 0])
        for name, busy in zip(names[:MOST_LANES], each, strict=False)
    ]


def callers(seen: Timeline, within: Intervals) -> list[Lane]:
    """The calls of other threads that call jitted functions too, of those that did so just then."""
    found = [union(np.concatenate(list(calls.values()))) for calls in seen.by_thread[1:]]
    there = [(number, intersection(calls, within)) for number, calls in enumerate(found, 2)]
    return [
        lane(f"caller {number}", "caller", {"dispatch": calls}, within[0, 0])
        for number, calls in there
        if len(calls)
    ][:MOST_LANES]


def copies(seen: Timeline, within: Intervals) -> list[Lane]:
    """When host arrays were copied to a device, in any thread; no lane if none were."""
    found = intersection(seen.copies, within)
    return [lane("copies to the device", "copies", {"copy": found}, within[0, 0])] * bool(
        len(found)
    )


def closed(spans: Intervals, gap_ns: int) -> Intervals:
    """The spans without the gaps between them that are too short to be seen."""
    if not len(spans):
        return NOTHING
    apart = spans[1:, 0] - spans[:-1, 1] > gap_ns
    begins = spans[np.concatenate([[True], apart]), 0]
    return np.stack([begins, spans[np.concatenate([apart, [True]]), 1]], axis=1)


def lane(name: str, kind: str, parts: Mapping[Part, Intervals], begin_ns: int | np.int64) -> Lane:
    """The longest spans of all parts, in the order of time; instants in ms from `begin_ns`."""
    named = [(part, a, b) for part, spans in parts.items() for a, b in spans.tolist()]
    kept = sorted(named, key=lambda each: each[1] - each[2])[:MOST_SPANS]
    return Lane(
        name=name,
        kind=kind,  # type: ignore[arg-type]
        spans=tuple(
            Span(part, since_ms(a, begin_ns), since_ms(b, begin_ns))
            for part, a, b in sorted(kept, key=lambda each: each[1])
        ),
        left_out=len(named) - len(kept),
    )


def since_ms(instant_ns: int, begin_ns: int | np.int64) -> float:
    """Milliseconds since the begin, to a microsecond."""
    return round((instant_ns - int(begin_ns)) / 1e6, 3)
