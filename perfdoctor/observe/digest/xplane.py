"""Reads an XLA profile (xplane.pb) into what the main thread and the devices did, when."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxlib import _profile_data

from perfdoctor.observe.digest.events import (
    Thread,
    named,
    operations_in,
    thread_of,
    together,
)
from perfdoctor.observe.digest.intervals import NOTHING, Instants, Intervals, contains, union
from perfdoctor.observe.digest.runs import (
    begins_of,
    computed_ms,
    operation_ms,
    runs_of,
)
from perfdoctor.observe.digest.timeline import Timeline

DISPATCH = "PjitFunction("
"""What the name of the event begins with in which the host calls a jitted function."""
HOST_WAITS = ("np.asarray(jax.Array)", "BlockUntilReady", "Await")
"""Events in which the host waits for a device."""
AWAIT = "PjRtBuffer::Await"
"""The begin of a `block_until_ready`, an instant; jax 0.8 has none."""
CPU_EXECUTION = "ThunkExecutor::Execute"
"""The event in which the CPU runs a program."""
BEGIN, END = "ThreadpoolListener::StartRegion", "ThreadpoolListener::StopRegion"
"""Around each task of a pool's thread; one that holds an execution runs a program. The event of the
execution itself has no length where the program did not leave the thread."""
UPLOAD, COPY = "DevicePut", "H2D Dispatch"
"""A host array that becomes an argument; the copy itself, where it is made by another thread."""
LONG = 0.25
"""The part of the longest copy from which on one is long: that of a far smaller array is not."""
CALLBACK = re.compile(r"^(pure_callback|io_callback|debug_callback|debug_print)[.\d]*$")
"""XLA names the operation that calls back to Python by the primitive of JAX."""
FEW = 10
"""Operations a dispatch: larger programs are not what is called operation by operation, and theirs
take long to go through."""
DEVICE_COPY = re.compile(r"^copy(\.\d+)?$")
"""Names of plain copies."""
GPU_PLANE = re.compile(r"^/device:\w+:(\d+)")
"""The name of a GPU's part of the trace, with its number."""
Busy = defaultdict[int, list[Intervals]]
"""By device: spans in which it computed, which may overlap."""


def read(trace: Path, functions: Collection[str] = ()) -> Timeline | None:
    """The timeline of the only profile below `trace`; None if there is none.

    `functions`: those of a step, if they are known: the thread that calls them most often trains.
    Else it is the one that makes most calls; a loader that puts arrays on the device makes some,
    too.
    """
    files = sorted(trace.rglob("*.xplane.pb"))
    if not files:
        return None
    planes = list(_profile_data.ProfileData.from_file(str(files[-1])).planes)
    origin = profile_start_ns(planes)
    busy: Busy = defaultdict(list)
    hosts: list[Thread] = []
    accelerators: list[Thread] = []
    for plane in planes:
        if accelerator := GPU_PLANE.match(plane.name):
            queues = [thread_of(line.events, origin) for line in plane.lines]
            busy[int(accelerator[1])] += [spans for each in queues for spans in each.spans.values()]
            accelerators += queues
        elif plane.name == "/host:CPU":
            hosts += [thread_of(line.events, origin) for line in plane.lines]
    for device, found in computing(hosts).items():
        busy[device] += found
    hosts.sort(key=partial(dispatches_in, functions), reverse=True)
    main, everything = hosts[:1], [*accelerators, *hosts]
    dispatches = dispatches_of(*main)
    calls = union(together(dispatches.values()))
    handed_over = named(main, UPLOAD.__eq__)
    copied = together([handed_over, named(everything, COPY.__eq__)])
    everywhere = union(together(spans for found in busy.values() for spans in found))
    marks = set[str]().union(*map(step_marks, hosts))
    operations = operations_of(everything, accelerators)
    runs = runs_of(hosts)
    are_small = len(operations) <= FEW * sum(map(count_dispatches, hosts))
    return Timeline(
        dispatches=dispatches,
        waits=waits_of(everywhere, *main),
        busy=everywhere,
        by_thread=tuple(dispatches_of(each) for each in hosts if count_dispatches(each)),
        uploads=handed_over[contains(calls, handed_over[:, 0])],
        copies=union(copied),
        long_copies=union(long_ones(copied)),
        copies_beside=union(named([*accelerators, *hosts[1:]], COPY.__eq__)),
        callbacks=named(everything, CALLBACK.match),
        device_copies=union(named(everything, DEVICE_COPY.match)),
        operations=operations,
        annotated=named(main, marks.__contains__),
        busy_by_device=tuple(
            union(together(busy[number])) for number in range(max(busy, default=-1) + 1)
        ),
        events=np.sort(together(spans for thread in main for spans in thread.spans.values())[:, 0]),
        runs=runs,
        run_begins=begins_of(hosts, runs),
        operation_ms=operation_ms(hosts),
        computed_ms=computed_ms(hosts) if are_small else {},
    )


def long_ones(spans: Intervals) -> Intervals:
    """Those that are not far shorter than the longest."""
    lengths = spans[:, 1] - spans[:, 0]
    found: Intervals = spans[lengths >= LONG * lengths.max(initial=0)]
    return found


def step_marks(thread: Thread) -> set[str]:
    """The names that the program gives its steps; an annotation carries the step's number."""
    kept = [(name, found) for name, found in thread.events.items() if found]
    return {name for name, found in kept if "step_num" in dict(found[-1].stats)}


def computing(threads: Sequence[Thread]) -> Busy:
    """When each CPU device computed, by the operations and executions of the host's threads."""
    ran = [executions(thread) for thread in threads]
    several = len(set[int]().union(*(set(devices.tolist()) for _, devices in ran))) > 1
    names = operations_in(threads)
    busy: Busy = defaultdict(list)

    def add(spans: Intervals, devices: Instants) -> None:
        for device in np.unique(devices):
            busy[int(device)].append(spans[devices == device])

    for thread, (instants, devices) in zip(threads, ran, strict=True):
        begins = [np.empty(0, np.int64)]
        for name, spans in thread.spans.items():
            if name in names:
                begins.append(spans[:, 0])
                numbers = devices_of(thread.events[name]) if several else np.zeros(len(spans), int)
                add(spans, numbers)
            elif name.startswith(CPU_EXECUTION):
                add(spans, devices_of(thread.events[name]))
        tasks, which = holding(regions(thread), instants)
        add(from_first(tasks, np.sort(np.concatenate(begins))), devices[which])
    return busy


def operations_of(threads: Iterable[Thread], accelerators: Iterable[Thread]) -> Instants:
    """The begin of each operation, of the host's threads and of accelerators."""
    names = operations_in(threads)
    begun = together(
        [
            named(threads, names.__contains__),
            named(accelerators, lambda name: True),
        ]
    )
    return np.sort(begun[:, 0])


def executions(thread: Thread) -> tuple[Instants, Instants]:
    """The instants at which a thread ran a program, and the devices that it was for."""
    found = [name for name in thread.spans if name.startswith(CPU_EXECUTION)]
    instants = together(thread.spans[name] for name in found)[:, 0]
    devices = devices_of([event for name in found for event in thread.events[name]])
    order = np.argsort(instants, kind="stable")
    return instants[order], devices[order]


def devices_of(events: list[Any]) -> Instants:
    """The numbers of the CPU devices that something was computed for."""
    numbers = (int(dict(event.stats).get("device_ordinal", 0)) for event in events)
    return np.fromiter(numbers, np.int64, len(events))


def holding(spans: Intervals, instants: Instants) -> tuple[Intervals, Instants]:
    """The spans in which one of the sorted instants lies, and the index of the first that does."""
    first = np.searchsorted(instants, spans[:, 0])
    reached = np.append(instants, np.iinfo(np.int64).max)[first] <= spans[:, 1]
    return spans[reached], first[reached]


def from_first(spans: Intervals, instants: Instants) -> Intervals:
    """The spans, each from the first of the sorted instants that lies in it, if one does."""
    first = np.searchsorted(instants, spans[:, 0])
    begins = np.append(instants, np.iinfo(np.int64).max)[first]
    return np.stack([np.where(begins <= spans[:, 1], begins, spans[:, 0]), spans[:, 1]], axis=1)


def regions(thread: Thread) -> Intervals:
    """The times from each begin of a task on a thread to its end."""
    begins = np.sort(thread.spans.get(BEGIN, NOTHING)[:, 0])
    ends = np.sort(thread.spans.get(END, NOTHING)[:, 0])
    newest = np.searchsorted(begins, ends, side="right") - 1
    before = np.concatenate([[np.iinfo(np.int64).min], ends[:-1]])[: len(ends)]
    own = newest >= 0
    own[own] = begins[newest[own]] >= before[own]
    return np.stack([begins[newest[own]], ends[own]], axis=1)


def profile_start_ns(planes: list[Any]) -> int:
    """Events are timed from the start of the profile; this is when that was."""
    for plane in planes:
        if plane.name == "Task Environment":
            return int(dict(plane.stats)["profile_start_time"])
    return 0


def count_dispatches(thread: Thread) -> int:
    """How many jitted functions a thread called."""
    return sum(len(spans) for name, spans in thread.spans.items() if name.startswith(DISPATCH))


def dispatches_in(functions: Collection[str], thread: Thread) -> tuple[int, int]:
    """How often a thread called some jitted functions, and how often any."""
    made = sum(len(thread.spans.get(f"{DISPATCH}{name})", NOTHING)) for name in functions)
    return made, count_dispatches(thread)


def dispatches_of(*threads: Thread) -> dict[str, Intervals]:
    """Calls by function; a call is listed twice, once inside the other, and counted once."""
    return {
        name[len(DISPATCH) : -1]: union(spans)
        for thread in threads
        for name, spans in thread.spans.items()
        if name.startswith(DISPATCH)
    }


def waits_of(busy: Intervals, *threads: Thread) -> Intervals:
    """When a thread waited for results: a wait that has no length ends with what is computed."""
    begins = named(threads, lambda name: name.endswith(AWAIT))[:, 0]
    begins = begins[contains(busy, begins)]
    computed = busy[np.searchsorted(busy[:, 0], begins, side="right") - 1, 1]
    starts = named(threads, lambda name: True)[:, 0]
    follows = np.searchsorted(starts, begins, side="right")
    followed = np.append(starts, np.iinfo(np.int64).max)[follows]
    drained = np.stack([begins, np.minimum(computed, followed)], axis=1)
    return union(together([named(threads, HOST_WAITS.__contains__), drained]))
