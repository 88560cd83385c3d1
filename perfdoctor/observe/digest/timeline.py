"""Reads an XLA profile (xplane.pb) into what the main thread and the devices did, when."""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxlib import _profile_data

from perfdoctor.observe.digest.intervals import NOTHING, Instants, Intervals, contains, union

DISPATCH = "PjitFunction("
HOST_WAITS = ("np.asarray(jax.Array)", "BlockUntilReady", "Await")
AWAIT = "PjRtBuffer::Await"
"""The begin of a `block_until_ready`, an instant; jax 0.8 has none."""
CPU_EXECUTION = "ThunkExecutor::Execute"
BEGIN, END = "ThreadpoolListener::StartRegion", "ThreadpoolListener::StopRegion"
"""Around each task of a pool's thread; one that holds an execution runs a program. The event of the
execution itself has no length where the program did not leave the thread."""
OPERATION_END = "end: "
"""Before the name of an operation, in a second event; jax 0.8 lists no operations."""
UPLOAD, COPY = "DevicePut", "H2D Dispatch"
"""A host array that becomes an argument; the copy itself, where it is made by another thread."""
CALLBACK = re.compile(r"^(pure_callback|io_callback|debug_callback|debug_print)[.\d]*$")
"""XLA names the operation that calls back to Python by the primitive of JAX."""
DEVICE_COPY = re.compile(r"^copy(\.\d+)?$")
GPU_PLANE = re.compile(r"^/device:\w+:(\d+)")


Event = tuple[str, int, int]
"""name, start, end"""
Busy = defaultdict[int, list[tuple[int, int]]]
"""By device: spans in which it computed, which may overlap."""


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
    device_copies: Intervals = field(default_factory=lambda: NOTHING)
    """When a device ran a copy operation of a program."""
    operations: Instants = field(default_factory=lambda: np.empty(0, np.int64))
    """When each operation of a program began; jax 0.8 tells none on the CPU."""
    annotated: Intervals = field(default_factory=lambda: NOTHING)
    """The steps that the program itself marks with `StepTraceAnnotation`."""
    busy_by_device: tuple[Intervals, ...] = ()
    """In the order of the devices' numbers; none where the trace does not tell them apart."""


def read(trace: Path) -> Timeline | None:
    """The timeline of the only profile below `trace`; None if there is none."""
    files = sorted(trace.rglob("*.xplane.pb"))
    if not files:
        return None
    planes = list(_profile_data.ProfileData.from_file(str(files[-1])).planes)
    origin = profile_start_ns(planes)
    busy: Busy = defaultdict(list)
    raw: list[list[Any]] = []
    on_accelerators: list[Event] = []
    for plane in planes:
        if accelerator := GPU_PLANE.match(plane.name):
            found = [(e.name, *span(e, origin)) for line in plane.lines for e in line.events]
            busy[int(accelerator[1])] += [(start, end) for _, start, end in found]
            on_accelerators += found
        elif plane.name == "/host:CPU":
            raw += [list(line.events) for line in plane.lines]
    hosts = [[(event.name, *span(event, origin)) for event in events] for events in raw]
    for device, spans in computing(raw, hosts).items():
        busy[device] += spans
    marks = set[str]().union(*(step_marks(events) for events in raw))
    hosts.sort(key=count_dispatches, reverse=True)
    main = hosts[0] if hosts else []
    everything = [*on_accelerators, *(event for events in hosts for event in events)]
    dispatches = dispatches_of(main)
    calls = union(np.concatenate([NOTHING, *dispatches.values()]))
    handed_over = each(main, UPLOAD)
    everywhere = union([pair for pairs in busy.values() for pair in pairs])
    return Timeline(
        dispatches=dispatches,
        waits=waits_of(main, everywhere),
        busy=everywhere,
        by_thread=tuple(dispatches_of(events) for events in hosts if count_dispatches(events)),
        uploads=handed_over[contains(calls, handed_over[:, 0])],
        copies=union(np.concatenate([handed_over, each(everything, COPY)])),
        callbacks=pairs_of((a, b) for name, a, b in everything if CALLBACK.match(name)),
        device_copies=union((a, b) for name, a, b in everything if DEVICE_COPY.match(name)),
        operations=operations_of(everything, on_accelerators),
        annotated=pairs_of((a, b) for name, a, b in main if name in marks),
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


def step_marks(events: Iterable[Any]) -> set[str]:
    """The names that the program gives its steps; an annotation carries the step's number."""
    firsts = {event.name: event for event in events}
    return {name for name, event in firsts.items() if "step_num" in dict(event.stats)}


def computing(hosts: list[list[Any]], named: list[list[Event]]) -> Busy:
    """When each CPU device computed; `named`: the same events of the same threads."""
    devices = [executions(*pair) for pair in zip(hosts, named, strict=True)]
    several = len({number for each in devices for number in each.values()}) > 1
    ended = {event[0] for events in named for event in events}
    busy: Busy = defaultdict(list)
    for raw, events, began in zip(hosts, named, devices, strict=True):
        running = [
            (start, end, device_of(event) if several else 0)
            for event, (name, start, end) in zip(raw, events, strict=True)
            if OPERATION_END + name in ended
        ]
        for start, end, device in running:
            busy[device].append((start, end))
        for name, start, end in events:
            if name.startswith(CPU_EXECUTION):
                busy[began[start]].append((start, end))
        operations = sorted(start for start, _, _ in running)
        for begin, end, device in tasks(events, began):
            first = bisect_left(operations, begin)
            told = first < len(operations) and operations[first] <= end
            busy[device].append((operations[first] if told else begin, end))
    return busy


def operations_of(events: list[Event], on_accelerators: list[Event]) -> Instants:
    """The begin of each operation, of the host's threads and of accelerators."""
    names = {name for name, _, _ in events}
    begins = [start for name, start, _ in events if OPERATION_END + name in names]
    return np.sort(np.asarray(begins + [start for _, start, _ in on_accelerators], np.int64))


def executions(raw: list[Any], named: list[Event]) -> dict[int, int]:
    """The instants at which a thread ran a program, and the device that it was for."""
    return {
        start: device_of(event)
        for event, (name, start, _) in zip(raw, named, strict=True)
        if name.startswith(CPU_EXECUTION)
    }


def device_of(event: Any) -> int:
    """The number of the CPU device that something is computed for."""
    return int(dict(event.stats).get("device_ordinal", 0))


def tasks(events: list[Event], began: dict[int, int]) -> Iterator[tuple[int, int, int]]:
    """Begin, end and device of the tasks of a thread that ran a program."""
    instants = sorted(began)
    for begin, end in regions(events):
        index = bisect_left(instants, begin)
        if index < len(instants) and instants[index] <= end:
            yield begin, end, began[instants[index]]


def regions(events: list[Event]) -> Iterator[tuple[int, int]]:
    """From each begin of a task on a thread to its end."""
    begin = None
    for name, start, _ in sorted(events, key=lambda event: event[1]):
        if name == BEGIN:
            begin = start
        elif name == END and begin is not None:
            yield begin, start
            begin = None


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


def waits_of(events: list[Event], busy: Intervals) -> Intervals:
    """When a thread waited for results: a wait that has no length ends with what is computed."""
    begins = np.asarray([start for name, start, _ in events if name.endswith(AWAIT)], np.int64)
    begins = begins[contains(busy, begins)]
    computed = busy[np.searchsorted(busy[:, 0], begins, side="right") - 1, 1]
    starts = np.sort(np.asarray([start for _, start, _ in events], np.int64))
    follows = np.searchsorted(starts, begins, side="right")
    followed = np.append(starts, np.iinfo(np.int64).max)[follows]
    drained = np.stack([begins, np.minimum(computed, followed)], axis=1)
    spans = pairs_of((start, end) for name, start, end in events if name in HOST_WAITS)
    return union(np.concatenate([spans, drained]))
