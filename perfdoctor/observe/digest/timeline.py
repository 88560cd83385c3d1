"""Reads an XLA profile (xplane.pb) into what the main thread and the devices did, when."""

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxlib import _profile_data

from perfdoctor.observe.digest.intervals import Intervals, union

DISPATCH = "PjitFunction("
HOST_WAITS = ("np.asarray(jax.Array)", "BlockUntilReady", "Await")
CPU_EXECUTION = "ThunkExecutor::Execute"


@dataclass(frozen=True)
class Timeline:
    """Instants are Unix time in nanoseconds."""

    dispatches: dict[str, Intervals]
    """By jitted function: when the main thread was calling it."""
    waits: Intervals
    """When the main thread waited for a device."""
    busy: Intervals
    """When any device computed."""


def read(trace: Path) -> Timeline | None:
    """The timeline of the only profile below `trace`; None if there is none."""
    files = sorted(trace.rglob("*.xplane.pb"))
    if not files:
        return None
    planes = list(_profile_data.ProfileData.from_file(str(files[-1])).planes)
    origin = profile_start_ns(planes)
    busy: list[tuple[int, int]] = []
    hosts: list[list[tuple[str, int, int]]] = []
    for plane in planes:
        if plane.name.startswith("/device:"):
            busy += [span(event, origin) for line in plane.lines for event in line.events]
        elif plane.name == "/host:CPU":
            for line in plane.lines:
                events = [(event.name, *span(event, origin)) for event in line.events]
                busy += [(a, b) for name, a, b in events if name.startswith(CPU_EXECUTION)]
                hosts.append(events)
    main = max(hosts, key=count_dispatches, default=[])
    return Timeline(dispatches_of(main), waits_of(main), union(busy))


def profile_start_ns(planes: list[Any]) -> int:
    """Events are timed from the start of the profile; this is when that was."""
    for plane in planes:
        if plane.name == "Task Environment":
            return int(dict(plane.stats)["profile_start_time"])
    return 0


def span(event: Any, origin_ns: int) -> tuple[int, int]:
    """Start and end of an event."""
    start = origin_ns + round(event.start_ns)
    return start, start + round(event.duration_ns)


def count_dispatches(events: list[tuple[str, int, int]]) -> int:
    """How many jitted functions a thread called; the thread with most is the one that trains."""
    return sum(name.startswith(DISPATCH) for name, _, _ in events)


def dispatches_of(events: list[tuple[str, int, int]]) -> dict[str, Intervals]:
    """Calls by function; a call is listed twice, once inside the other, and counted once."""
    spans: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for name, start, end in events:
        if name.startswith(DISPATCH):
            spans[name[len(DISPATCH) : -1]].append((start, end))
    return {name: union(pairs) for name, pairs in spans.items()}


def waits_of(events: list[tuple[str, int, int]]) -> Intervals:
    """When a thread waited for results."""
    return union([(start, end) for name, start, end in events if name in HOST_WAITS])
