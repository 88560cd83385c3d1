"""Reads an XLA profile (xplane.pb) into what the main thread and the devices did, when."""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
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
from perfdoctor.observe.digest.executable import module_name
from perfdoctor.observe.digest.intervals import NOTHING, Instants, Intervals, contains, union
from perfdoctor.observe.digest.runs import (
    Operation,
    Runs,
    begins_of,
    computed_ms,
    operation_ms,
    runs_of,
)

DISPATCH = "PjitFunction("
HOST_WAITS = ("np.asarray(jax.Array)", "BlockUntilReady", "Await")
AWAIT = "PjRtBuffer::Await"
"""The begin of a `block_until_ready`, an instant; jax 0.8 has none."""
CPU_EXECUTION = "ThunkExecutor::Execute"
BEGIN, END = "ThreadpoolListener::StartRegion", "ThreadpoolListener::StopRegion"
"""Around each task of a pool's thread; one that holds an execution runs a program. The event of the
execution itself has no length where the program did not leave the thread."""
UPLOAD, COPY = "DevicePut", "H2D Dispatch"
"""A host array that becomes an argument; the copy itself, where it is made by another thread."""
CALLBACK = re.compile(r"^(pure_callback|io_callback|debug_callback|debug_print)[.\d]*$")
"""XLA names the operation that calls back to Python by the primitive of JAX."""
FEW = 10
"""Operations a dispatch: larger programs are not what is called operation by operation, and theirs
take long to go through."""
FEW_MORE, SHARE_MORE = 3, 0.25
"""A host that is as far ahead at a window's end as at its begin calls as much in it as is computed,
but for some calls at the edges; or for this share, where steps are not alike."""
DEVICE_COPY = re.compile(r"^copy(\.\d+)?$")
GPU_PLANE = re.compile(r"^/device:\w+:(\d+)")


Busy = defaultdict[int, list[Intervals]]
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
    events: Instants = field(default_factory=lambda: np.empty(0, np.int64))
    """When each event of the main thread began."""
    runs: dict[Operation, Runs] = field(default_factory=dict)
    """By operation, of programs on the CPU; jax 0.8 tells none."""
    run_begins: dict[str, Instants] = field(default_factory=dict)
    """By XLA's name for a program: when its runs on the CPU began, where that can be told."""
    is_as_computed: bool = False
    """Whether calls are put where they were computed; see `as_computed`."""
    operation_ms: dict[str, float] = field(default_factory=dict)
    """By operation on the CPU: how long it took in all its runs; jax 0.8 tells none."""
    computed_ms: dict[str, float] = field(default_factory=dict)
    """By XLA's name for a program: how long its operations took on the CPU, those that ran beside
    each other each its part. Told where programs are of few operations; jax 0.8 tells none."""


def read(trace: Path) -> Timeline | None:
    """The timeline of the only profile below `trace`; None if there is none."""
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
    hosts.sort(key=count_dispatches, reverse=True)
    main, everything = hosts[:1], [*accelerators, *hosts]
    dispatches = dispatches_of(*main)
    calls = union(together(dispatches.values()))
    handed_over = named(main, UPLOAD.__eq__)
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
        copies=union(together([handed_over, named(everything, COPY.__eq__)])),
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


def as_computed(timeline: Timeline, *, even_if_as_many: bool = False) -> Timeline:
    """With the calls of a program that is far ahead of the device put where they were computed.

    It may have made all calls of the window before it, or those of the next minute in it. Of
    several threads or devices it is not told which call is which run's. `even_if_as_many`: also
    where as many calls were made as computed, of other steps.
    """
    if len(timeline.by_thread) > 1 or len(timeline.busy_by_device) > 1:
        return timeline
    functions = {module_name(name): name for name in timeline.dispatches}
    begun = {
        functions.get(module, module.removeprefix("jit_")): begins
        for module, begins in timeline.run_begins.items()
    }
    called = {name: len(timeline.dispatches.get(name, NOTHING)) for name in begun}
    differ = any(is_another_number(called[name], len(begins)) for name, begins in begun.items())
    if not begun or not (differ or even_if_as_many):
        return timeline
    moved = {name: np.stack([begins, begins + 1], axis=1) for name, begins in begun.items()}
    calls = timeline.dispatches | moved
    return replace(
        timeline, dispatches=calls, by_thread=(calls,), annotated=NOTHING, is_as_computed=True
    )


def is_another_number(called: int, computed: int) -> bool:
    """Whether so many calls can't be those that were computed, but for some at the edges."""
    return abs(called - computed) > max(FEW_MORE, SHARE_MORE * computed)


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
    """From each begin of a task on a thread to its end."""
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
    """How many jitted functions a thread called; the thread with most is the one that trains."""
    return sum(len(spans) for name, spans in thread.spans.items() if name.startswith(DISPATCH))


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
