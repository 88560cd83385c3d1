"""The events of an XLA profile, thread by thread and by their names."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfdoctor.observe.digest.intervals import NOTHING, Intervals

OPERATION_END = "end: "
"""What stands before the name of an operation in the event of its end; jax 0.8 lists no
operations."""


@dataclass(frozen=True)
class Thread:
    """The events of one thread of the host, or of one queue of a device, by their names.

    A trace has millions of events, and few names: whatever is asked is asked of the names.
    """

    events: dict[str, list[Any]]
    """As the profile has them."""
    spans: dict[str, Intervals]
    """Begin and end of each of them."""


def thread_of(events: Iterable[Any], origin_ns: int) -> Thread:
    """Events of the profile, which are timed from its start; `origin_ns`: when that was.

    Of the ends of operations, which are half of all, only the names are kept.
    """
    by_name: defaultdict[str, list[Any]] = defaultdict(list)
    for event in events:
        name = event.name
        if name.startswith(OPERATION_END):
            by_name[name]
        else:
            by_name[name].append(event)
    return Thread(
        events=dict(by_name),
        spans={name: spans_of(found, origin_ns) for name, found in by_name.items()},
    )


def spans_of(events: list[Any], origin_ns: int) -> Intervals:
    """Begin and end of each event."""
    starts = np.fromiter((event.start_ns for event in events), np.float64, len(events))
    lengths = np.fromiter((event.duration_ns for event in events), np.float64, len(events))
    begins = origin_ns + np.rint(starts).astype(np.int64)
    return np.stack([begins, begins + np.rint(lengths).astype(np.int64)], axis=1)


def named(threads: Iterable[Thread], wanted: Callable[[str], object]) -> Intervals:
    """The spans of all events with a wanted name, overlapping or not, sorted."""
    found = [spans for thread in threads for name, spans in thread.spans.items() if wanted(name)]
    pairs = together(found)
    return pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]


def together(several: Iterable[Intervals]) -> Intervals:
    """Spans in one array, as they come."""
    return np.concatenate([NOTHING, *several])


def operations_in(threads: Iterable[Thread]) -> set[str]:
    """The names of all operations: an event that is one has another at its end."""
    names = set[str]().union(*(thread.spans for thread in threads))
    return {name for name in names if OPERATION_END + name in names}
