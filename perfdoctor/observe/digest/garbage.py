"""Groups the collections of the window by generation and place."""

import re
from collections import defaultdict

from perfdoctor.observe.digest.from_calls import told_by_calls
from perfdoctor.schema.recording import CollectionEvent, Recording
from perfdoctor.schema.run import Collection, Garbage

CALL = re.compile(r"\bcollect\s*\(")
"""A line of code that calls the garbage collector."""


def garbage_of(recording: Recording) -> Garbage | None:
    """Of the window; of a run that ended before one was traced, while its steps were timed; None if
    they were not.
    """
    window, calls = recording.window, told_by_calls(recording)
    if window is not None:
        begin_ns, end_ns = window.start_ns, window.end_ns
    elif calls is not None and any(calls.timed_ns):
        begin_ns, end_ns = calls.timed_ns
    else:
        return None
    groups: defaultdict[tuple[int, str, bool], list[CollectionEvent]] = defaultdict(list)
    for event in recording.collections:
        if begin_ns <= event.start_ns <= end_ns:
            place = f"{event.frame[0]}:{event.frame[1]}"
            groups[event.generation, place, bool(CALL.search(event.source))].append(event)
    collections = [
        collection(generation, place, explicit, events)
        for (generation, place, explicit), events in groups.items()
    ]
    return Garbage(
        live_objects=recording.live_objects,
        frozen_objects=recording.frozen_objects,
        thresholds=recording.gc_thresholds,
        window_s=(end_ns - begin_ns) / 1e9,
        collections=tuple(sorted(collections, key=lambda c: -c.total_ms)[:10]),
    )


def collection(
    generation: int, place: str, explicit: bool, events: list[CollectionEvent]
) -> Collection:
    """The events of one generation and place, added up."""
    times_ms = [(event.end_ns - event.start_ns) / 1e6 for event in events]
    return Collection(
        generation=generation,
        count=len(events),
        total_ms=sum(times_ms),
        longest_ms=max(times_ms),
        collected=sum(event.collected for event in events),
        place=place,
        explicit=explicit,
    )
