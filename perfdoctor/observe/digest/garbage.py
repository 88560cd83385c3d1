"""Groups the collections of the window by generation and place."""

import re
from collections import defaultdict

from perfdoctor.schema.recording import CollectionEvent, Recording
from perfdoctor.schema.run import Collection, Garbage

CALL = re.compile(r"\bcollect\s*\(")
"""A line of code that calls the garbage collector."""


def garbage_of(recording: Recording) -> Garbage | None:
    """None if the run ended before a window was traced."""
    window = recording.window
    if window is None:
        return None
    groups: defaultdict[tuple[int, str, bool], list[CollectionEvent]] = defaultdict(list)
    for event in recording.collections:
        if window.start_ns <= event.start_ns <= window.end_ns:
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
        window_s=(window.end_ns - window.start_ns) / 1e9,
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
