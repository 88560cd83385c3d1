"""Reads an XLA profile (xplane.pb) into what the main thread and the devices did, when."""

from dataclasses import dataclass, field, replace

import numpy as np

from perfdoctor.observe.digest.executable import module_name
from perfdoctor.observe.digest.intervals import NOTHING, Instants, Intervals, contains
from perfdoctor.observe.digest.runs import (
    Operation,
    Runs,
)

FEW_MORE, SHARE_MORE = 3, 0.25
"""Calls, or the share of them, by which a window may hold more calls than it computes, or fewer: a
host that is as far ahead at its end as at its begin calls as much as is computed, but for some
calls at the edges, or where steps are not alike."""


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
    long_copies: Intervals = field(default_factory=lambda: NOTHING)
    """The part of it in copies that took a quarter as long as the longest, or more."""
    copies_beside: Intervals = field(default_factory=lambda: NOTHING)
    """When other threads than the main one did."""
    callbacks: Intervals = field(default_factory=lambda: NOTHING)
    """When a program called back to Python, one interval each."""
    device_copies: Intervals = field(default_factory=lambda: NOTHING)
    """When a device ran a copy operation of a program."""
    operations: Instants = field(default_factory=lambda: np.empty(0, np.int64))
    """When each operation of a program began; jax 0.8 tells none on the CPU."""
    annotated: Intervals = field(default_factory=lambda: NOTHING)
    """The steps that the program itself marks with `StepTraceAnnotation`."""
    busy_by_device: tuple[Intervals, ...] = ()
    """When each device computed, in the order of their numbers; empty where the trace does not tell
    them apart."""
    events: Instants = field(default_factory=lambda: np.empty(0, np.int64))
    """When each event of the main thread began."""
    runs: dict[Operation, Runs] = field(default_factory=dict)
    """By operation, of programs on the CPU; jax 0.8 tells none."""
    run_begins: dict[str, Instants] = field(default_factory=dict)
    """By XLA's name for a program: when its runs on the CPU began, where that can be told."""
    is_as_computed: bool = False
    """Whether calls are put where they were computed; see `as_computed`."""
    operation_ms: dict[str, dict[str, float]] = field(default_factory=dict)
    """By XLA's name for a program, and by operation on the CPU: how long it took in all its runs;
    jax 0.8 tells none."""
    computed_ms: dict[str, float] = field(default_factory=dict)
    """By XLA's name for a program: how long its operations took on the CPU, those that ran beside
    each other each its part. Told where programs are of few operations; jax 0.8 tells none."""


def without_tracing(timeline: Timeline, tracing: Intervals) -> Timeline:
    """The timeline without the calls of jitted functions that were made while another was being
    traced.
    """

    def dispatched(calls: dict[str, Intervals]) -> dict[str, Intervals]:
        kept = {name: spans[~contains(tracing, spans[:, 0])] for name, spans in calls.items()}
        return {name: spans for name, spans in kept.items() if len(spans)}

    return replace(
        timeline,
        dispatches=dispatched(timeline.dispatches),
        by_thread=tuple(dispatched(calls) for calls in timeline.by_thread),
    )


def as_computed(timeline: Timeline, *, even_if_as_many: bool = False) -> Timeline:
    """The timeline of a program that is far ahead of the device, its calls put where they were
    computed.

    It may have made all calls of the window before it, or those of the next minute in it, or those
    of the window in a burst at its begin. Of several threads or devices it is not told which call
    is which run's. `even_if_as_many`: also where as many calls were made as computed, of other
    steps.
    """
    if len(timeline.by_thread) > 1 or len(timeline.busy_by_device) > 1:
        return timeline
    functions = {module_name(name): name for name in timeline.dispatches}
    begun = {
        functions.get(module, module.removeprefix("jit_")): begins
        for module, begins in timeline.run_begins.items()
    }
    called = {name: timeline.dispatches.get(name, NOTHING)[:, 0] for name in begun}
    differ = any(
        is_another_number(len(called[name]), len(begins)) or is_burst(called[name], begins)
        for name, begins in begun.items()
    )
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


def is_burst(called: Instants, computed: Instants) -> bool:
    """Whether calls follow each other more quickly than they are computed, all in all."""
    if min(len(called), len(computed)) <= FEW_MORE:
        return False
    calls_ns, runs_ns = (float(np.ptp(each)) / (len(each) - 1) for each in (called, computed))
    return calls_ns < (1 - SHARE_MORE) * runs_ns
