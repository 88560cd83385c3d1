"""What the host does beside a step: as it was observed, and without what a fix takes away."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from perfdoctor.schema.calls import Restless, StepCalls
from perfdoctor.schema.capture import NO_CALLBACKS, Conditions, Replayed, growth
from perfdoctor.schema.fix import Scalar
from perfdoctor.schema.steps import Steps

LEAST_MS = 1e-6
"""A step time below which nothing is divided by it."""
OFTEN = 0.5
"""Compilations a step from which on a program is one that compiles in each."""
EACH_STEP = 0.5
"""The share of steps from which on a program that waits in so many of them is said to wait in
each."""


@dataclass(frozen=True)
class Host:
    """The host's part of a step, and what of it is loading or collecting."""

    as_observed: Conditions
    loading_share: float
    """The share of the host's own work, and of its sleep, that is loading."""
    collecting_ms: float
    """Of the work of each step."""
    rare_ms: float = 0.0
    """What a step takes in the mean for what is done now and then, and is not replayed."""
    rarely_collecting_ms: float = 0.0
    """Of that."""
    compiling_ms: float = 0.0
    """Of that too."""
    reading_ms: float = 0.0
    """Work on results that it has waited for."""


def alone(program: str) -> Conditions:
    """Conditions with nothing on the host, and nothing to be sent to the device."""
    return Conditions(program=program, resident="all")


def host_of(calls: StepCalls, steps: Steps | None, by_itself: Replayed, program: str) -> Host:
    """As it was observed. `by_itself`: the step with nothing on the host.

    What a call takes of the processor more than in the replay, whose arguments are flat, is work of
    the host; unless it compiles in each step, then that is what it takes. Where the host waits for
    each step it is blocked for as long as that is computed after the call's return, less the work
    that it does before it waits; whatever else blocks it is no matter of the device, and other
    threads work meanwhile. Of a program whose callbacks are left out, what calls take beyond the
    replay is theirs.
    """
    within = beyond_replay_ms(calls, by_itself, program)
    spins = [call.before_cpu_ms + each for call, each in zip(calls.calls, within, strict=True)]
    blocked = [max(0.0, call.before_ms - call.before_cpu_ms) for call in calls.calls]
    idle_ms = max(0.0, sum(blocked) - calls.delayed_ms)
    waits = waiting_share(calls, steps, idle_ms)
    overlap_ms = 0.0
    if waits >= EACH_STEP and compiles(calls):  # a program takes longer the first time it is run
        idle_ms, waits = 0.0, 1.0
    elif waits >= EACH_STEP:
        overlap_ms = min(calls.calls[0].before_cpu_ms, max(0.0, by_itself.waited_ms - idle_ms))
        idle_ms = max(0.0, idle_ms - by_itself.waited_ms)
        waits = 1.0
    free = calls.free_running(steps.etl_ms) if steps is not None else ()
    if free:  # it waits for its turn, not for what they do
        idle_ms = 0.0
    spins[0] -= overlap_ms
    rare_ms = max(calls.compiling_ms, 0.0 if calls.runs_ahead else calls.rare_ms)
    rarely_collecting_ms = min(rare_ms, calls.collecting_ms)
    collecting_ms = calls.collecting_ms - rarely_collecting_ms
    between_ms = sum(call.before_cpu_ms for call in calls.calls) - collecting_ms
    if calls.runs_ahead:  # what is collected now and then is in none of the usual gaps
        spins[0] += max(0.0, -between_ms)
    as_observed = Conditions(
        program=program,
        spin_ms=tuple(spins),
        sleep_ms=tuple(idle_ms * each / max(sum(blocked), LEAST_MS) for each in blocked),
        overlap_ms=overlap_ms,
        waits=waits,
        threads_ms=max(0.0, calls.threads_cpu_ms - cpu_ms(free, of_processes=False) - idle_ms),
        children_ms=max(0.0, calls.children_cpu_ms - cpu_ms(free, of_processes=True)),
        restless=len(free),
        callers=calls.threads,
    )
    return Host(
        as_observed=as_observed,
        loading_share=loading_share(calls, steps, collecting_ms)
        * max(0.0, between_ms)
        / max(work_ms(as_observed), LEAST_MS),
        collecting_ms=collecting_ms,
        rare_ms=rare_ms,
        rarely_collecting_ms=rarely_collecting_ms,
        compiling_ms=calls.compiling_ms,
        reading_ms=steps.reading_ms if steps is not None else 0.0,
    )


def beyond_replay_ms(calls: StepCalls, by_itself: Replayed, program: str) -> list[float]:
    """What each call takes of the processor more than in the replay."""
    if program == NO_CALLBACKS:
        return [0.0] * len(calls.calls)
    inside = by_itself.inside_cpu_ms
    if not inside or compiles(calls):
        inside = tuple(call.inside_cpu_ms for call in calls.calls)
    return [
        max(0.0, call.inside_cpu_ms - replayed_ms)
        for call, replayed_ms in zip(calls.calls, inside, strict=True)
    ]


def cpu_ms(restless: Sequence[Restless], *, of_processes: bool) -> float:
    """What those that never rest take of the processor: the processes, or the threads."""
    return sum(each.cpu_ms for each in restless if each.is_process == of_processes)


def compiles(calls: StepCalls) -> bool:
    """Whether something is compiled in each step, or nearly so."""
    return calls.compilations >= OFTEN


def waiting_share(calls: StepCalls, steps: Steps | None, idle_ms: float) -> float:
    """The share of steps after which the host waits for a result."""
    if steps is not None and calls.threads == 1 and calls.in_main_thread:
        return steps.synchronized
    return 1.0 if not calls.runs_ahead and idle_ms > 0 else 0.0


def loading_share(calls: StepCalls, steps: Steps | None, collecting_ms: float = 0.0) -> float:
    """The share of loading in what the main thread does between its calls besides waiting, by the
    sampled stacks. A call may take as long as the step is computed, which no dispatch tells.

    `collecting_ms`: of collections between the calls of each step.
    """
    if steps is None:
        return 0.0
    own_ms = steps.time_ms - steps.dispatch_ms - steps.wait_ms - steps.gc_ms
    if calls.threads == 1 and calls.in_main_thread:
        slowed = steps.time_ms / calls.time_ms
        before_ms = slowed * sum(call.before_ms for call in calls.calls)
        work_ms = slowed * sum(call.before_cpu_ms for call in calls.calls)
        waited_ms = min(steps.wait_ms, max(0.0, before_ms - work_ms))
        own_ms = min(own_ms, before_ms - waited_ms - slowed * collecting_ms)
    return min(1.0, max(0.0, steps.etl_ms / own_ms)) if own_ms > 0 else 0.0


def changed(host: Host, change: dict[str, Scalar]) -> Conditions:
    """The conditions with what a fix changes about the step; see `Change.step`."""
    conditions = host.as_observed
    for name, value in change.items():
        if name == "loading":
            conditions = loading_elsewhere(conditions, host.loading_share, str(value))
        elif name == "waits":
            conditions = waiting_less(conditions, host.reading_ms, float(value or 0.0))
        elif name == "collecting":
            conditions = less_work(conditions, host.collecting_ms)
        elif name == "handling":
            conditions = only(conditions, host.loading_share)
        elif name == "program" and value == "together":
            conditions = by_one_thread(conditions)
        elif name == "program":
            conditions = with_program(conditions, str(value), host.loading_share)
        elif name == "compiled":
            continue  # a replayed program is; see `rare_ms`
        else:
            conditions = msgspec.convert(
                {**msgspec.to_builtins(conditions), name: value}, Conditions
            )
    return conditions


def rare_ms(host: Host, change: dict[str, Scalar]) -> float:
    """What is left of what is done now and then: collections are the most of it, if it is that, and
    nothing is compiled but once.
    """
    spared_ms = host.rarely_collecting_ms if "collecting" in change else 0.0
    spared_ms += host.compiling_ms if "compiled" in change else 0.0
    return max(0.0, host.rare_ms - spared_ms)


def with_program(conditions: Conditions, program: str, loading_share: float) -> Conditions:
    """Larger batches take longer to load, by as much as they are larger."""
    times = 1 + loading_share * (growth(program) - 1)
    return msgspec.structs.replace(
        conditions,
        program=program,
        spin_ms=tuple(times * each for each in conditions.spin_ms),
        sleep_ms=tuple(times * each for each in conditions.sleep_ms),
        overlap_ms=times * conditions.overlap_ms,
    )


def by_one_thread(conditions: Conditions) -> Conditions:
    """The requests of all threads in one call; what the threads do besides stays to be done."""
    return msgspec.structs.replace(
        conditions,
        program="together",
        spin_ms=tuple(conditions.callers * each for each in conditions.spin_ms),
        sleep_ms=(),
        callers=1,
    )


def loading_elsewhere(conditions: Conditions, share: float, where: str) -> Conditions:
    """`where`: thread, process, or nowhere, for what is loaded and prepared once for all."""
    moved_ms = share * work_ms(conditions)
    left = 1 - share
    return msgspec.structs.replace(
        only(conditions, left),
        threads_ms=(conditions.threads_ms if where != "nowhere" else left * conditions.threads_ms)
        + (moved_ms if where == "thread" else 0.0),
        children_ms=(conditions.children_ms if where != "nowhere" else 0.0)
        + (moved_ms if where == "process" else 0.0),
    )


def only(conditions: Conditions, share: float) -> Conditions:
    """Of what the calling thread does, and of what it sleeps, this share is left."""
    return msgspec.structs.replace(
        conditions,
        spin_ms=tuple(share * each for each in conditions.spin_ms),
        sleep_ms=tuple(share * each for each in conditions.sleep_ms),
        overlap_ms=share * conditions.overlap_ms,
    )


def waiting_less(conditions: Conditions, reading_ms: float, waits: float) -> Conditions:
    """Results are read in so many of the steps, and worked on."""
    left = min(1.0, waits / conditions.waits) if conditions.waits > 0 else 1.0
    conditions = less_work(conditions, (1 - left) * reading_ms)
    return msgspec.structs.replace(conditions, waits=waits)


def work_ms(conditions: Conditions) -> float:
    """The host's own work in a step."""
    return sum(conditions.spin_ms) + conditions.overlap_ms


def less_work(conditions: Conditions, saved_ms: float) -> Conditions:
    """The conditions with so much less of the host's own work, wherever in the step it is done."""
    whole_ms = work_ms(conditions)
    left = max(0.0, 1 - saved_ms / whole_ms) if whole_ms > 0 else 1.0
    return msgspec.structs.replace(
        conditions,
        spin_ms=tuple(left * each for each in conditions.spin_ms),
        overlap_ms=left * conditions.overlap_ms,
    )
