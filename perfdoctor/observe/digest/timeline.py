"""Reads an XLA profile (xplane.pb) into what the main thread and the devices did, when."""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxlib import _profile_data

from perfdoctor.observe.digest.intervals import NOTHING, Intervals, contains, union

DISPATCH = "PjitFunction("
HOST_WAITS = ("np.asarray(jax.Array)", "BlockUntilReady", "Await")
CPU_EXECUTION = "ThunkExecutor::Execute"
UPLOAD, COPY = "DevicePut", "H2D Dispatch"
"""A host array that becomes an argument; the copy itself, where it is made by another thread."""
CALLBACK = re.compile(r"^(pure_callback|io_callback|debug_callback|debug_print)[.\d]*$")
"""XLA names the operation that calls back to Python by the primitive of JAX."""
GPU_PLANE = re.compile(r"^/device:\w+:(\d+)")


Event = tuple[str, int, int]
"""name, start, end"""


@dataclass(frozen=True)
class Timeline:
    """Instants are Unix time in nanoseconds."""

    dispatches: dict[str, Intervals]
    """By jitted function: when the main thread was calling it."""
    waits: Intervals
    """When the main thread waited for a device."""
    busy: Intervals
    """When any device computed."""
    by_thread: tuple[dict[str, Intervals], ...] = ()
    """The dispatches of each thread that made any, of the busiest first."""
    uploads: Intervals = field(default_factory=lambda: NOTHING)
    """When the main thread handed over host arrays in its dispatches, one interval each."""
    copies: Intervals = field(default_factory=lambda: NOTHING)
    """When any thread copied a host array to a device."""
    callbacks: Intervals = field(default_factory=lambda: NOTHING)
    """When a program called back to Python, one interval each."""
    busy_by_device: tuple[Intervals, ...] = ()
    """In the order of the devices' numbers; none where the trace does not tell them apart."""


def read(trace: Path) -> Timeline | None:
    """The timeline of the only profile below `trace`; None if there is none."""
    files = sorted(trace.rglob("*.xplane.pb"))
    if not files:
        return None
    planes = list(_profile_data.ProfileData.from_file(str(files[-1])).planes)
    origin = profile_start_ns(planes)
    busy: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    hosts: list[list[Event]] = []
    for plane in planes:
        if accelerator := GPU_PLANE.match(plane.name):
            spans = [span(event, origin) for line in plane.lines for event in line.events]
            busy[int(accelerator[1])] += spans
        elif plane.name == "/host:CPU":
            for line in plane.lines:
                hosts.append([(event.name, *span(event, origin)) for event in line.events])
                for event in line.events:
                    if event.name.startswith(CPU_EXECUTION):
                        busy[ordinal(event)].append(span(event, origin))
    hosts.sort(key=count_dispatches, reverse=True)
    main = hosts[0] if hosts else []
    everything = [event for events in hosts for event in events]
    dispatches = dispatches_of(main)
    calls = union(np.concatenate([NOTHING, *dispatches.values()]))
    handed_over = each(main, UPLOAD)
    return Timeline(
        dispatches=dispatches,
        waits=waits_of(main),
        busy=union([pair for pairs in busy.values() for pair in pairs]),
        by_thread=tuple(dispatches_of(events) for events in hosts if count_dispatches(events)),
        uploads=handed_over[contains(calls, handed_over[:, 0])],
        copies=union(np.concatenate([handed_over, each(everything, COPY)])),
        callbacks=pairs_of((a, b) for name, a, b in everything if CALLBACK.match(name)),
        busy_by_device=tuple(union(busy[number]) for number in range(max(busy, default=-1) + 1)),
    )


def without_tracing(timeline: Timeline, tracing: Intervals) -> Timeline:
    """Without the calls of jitted functions that were made while another was being traced."""

    def dispatched(calls: dict[str, Intervals]) -> dict[str, Intervals]:
        kept = {name: spans[~contains(tracing, spans[:, 0])] for name, spans in calls.items()}
        return {name: spans for name, spans in kept.items() if len(spans)}

    return replace(
        timeline,
        dispatches=dispatched(timeline.dispatches),
        by_thread=tuple(dispatched(calls) for calls in timeline.by_thread),
    )


def ordinal(event: Any) -> int:
    """The number of the CPU device that an execution is on."""
    return int(dict(event.stats).get("device_ordinal", 0))


def each(events: list[Event], name: str) -> Intervals:
    """The spans of the events of one name, overlapping or not."""
    return pairs_of((a, b) for found, a, b in events if found == name)


def pairs_of(pairs: Iterable[tuple[int, int]]) -> Intervals:
    """Pairs as an array, sorted by their begins."""
    found: Intervals = np.asarray(sorted(pairs), np.int64).reshape(-1, 2)
    return found


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


def count_dispatches(events: list[Event]) -> int:
    """How many jitted functions a thread called; the thread with most is the one that trains."""
    return sum(name.startswith(DISPATCH) for name, _, _ in events)


def dispatches_of(events: list[Event]) -> dict[str, Intervals]:
    """Calls by function; a call is listed twice, once inside the other, and counted once."""
    spans: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for name, start, end in events:
        if name.startswith(DISPATCH):
            spans[name[len(DISPATCH) : -1]].append((start, end))
    return {name: union(pairs) for name, pairs in spans.items()}


def waits_of(events: list[Event]) -> Intervals:
    """When a thread waited for results."""
    return union([(start, end) for name, start, end in events if name in HOST_WAITS])
