"""Reads an XLA profile (xplane.pb) into what the main thread and the devices did, when."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxlib import _profile_data

from perfdoctor.observe.digest.intervals import NOTHING, Intervals, contains, union

DISPATCH = "PjitFunction("
HOST_WAITS = ("np.asarray(jax.Array)", "BlockUntilReady", "Await")
AWAIT = "PjRtBuffer::Await"
"""The begin of a `block_until_ready`, an instant; jax 0.8 has none."""
CPU_EXECUTION = "ThunkExecutor::Execute"
CPU_POOLS = re.compile(r"^tf_XLA(PjRtCpuClient|Execute|Eigen)/")
"""Threads that run programs, or pieces of operations, between a StartRegion and a StopRegion. The
execution's own events have no length where it did not leave its thread, and jax 0.8 lists no
operations."""
BEGIN, END = "ThreadpoolListener::StartRegion", "ThreadpoolListener::StopRegion"
UPLOAD, COPY = "DevicePut", "H2D Dispatch"
"""A host array that becomes an argument; the copy itself, where it is made by another thread."""
CALLBACK = re.compile(r"^(pure_callback|io_callback|debug_callback|debug_print)[.\d]*$")
"""XLA names the operation that calls back to Python by the primitive of JAX."""
ANY_DEVICE = -1
"""Pieces of an operation, which do not say of which device."""
DEVICE_COPY = re.compile(r"^copy(\.\d+)?$")
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
    device_copies: Intervals = field(default_factory=lambda: NOTHING)
    """When a device ran a copy operation of a program."""
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
    busy: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    hosts: list[list[Event]] = []
    on_accelerators: list[Event] = []
    marks: set[str] = set()
    for plane in planes:
        if accelerator := GPU_PLANE.match(plane.name):
            found = [(e.name, *span(e, origin)) for line in plane.lines for e in line.events]
            busy[int(accelerator[1])] += [(start, end) for _, start, end in found]
            on_accelerators += found
        elif plane.name == "/host:CPU":
            for line in plane.lines:
                events = list(line.events)
                hosts.append([(event.name, *span(event, origin)) for event in events])
                marks |= step_marks(events)
                if CPU_POOLS.match(line.name):
                    executing(events, hosts[-1], busy)
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
        annotated=pairs_of((a, b) for name, a, b in main if name in marks),
        busy_by_device=by_device(busy),
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


def executing(
    events: list[Any], named: list[Event], busy: defaultdict[int, list[tuple[int, int]]]
) -> None:
    """Add what a thread of the CPU's pools computed, by device; `named`: the same events."""
    on_device: dict[int, int] = {}
    for event, (name, start, end) in zip(events, named, strict=True):
        if name.startswith(CPU_EXECUTION):
            device = int(dict(event.stats).get("device_ordinal", 0))
            busy[device].append((start, end))
            on_device[start] = device
    instants = np.asarray(sorted(on_device), np.int64)
    for begin, end in regions(named):
        inside = instants[
            np.searchsorted(instants, begin) : np.searchsorted(instants, end, "right")
        ]
        busy[on_device[int(inside[0])] if len(inside) else ANY_DEVICE].append((begin, end))


def regions(events: list[Event]) -> Iterator[tuple[int, int]]:
    """From each begin of a task on a thread to its end."""
    begin = None
    for name, start, _ in sorted(events, key=lambda event: event[1]):
        if name == BEGIN:
            begin = start
        elif name == END and begin is not None:
            yield begin, start
            begin = None


def by_device(busy: dict[int, list[tuple[int, int]]]) -> tuple[Intervals, ...]:
    """What each device computed, as far as that is told."""
    numbers = [number for number in busy if number != ANY_DEVICE]
    return tuple(union(busy.get(n, [])) for n in range(max(numbers, default=-1) + 1))


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
