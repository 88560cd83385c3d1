"""What the host does beside a step, as it was observed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from perfdoctor.schema.calls import LITTLE, Restless, StepCalls
from perfdoctor.schema.capture import AS_IT_IS, NO_CALLBACKS, Capture, Conditions, Replayed
from perfdoctor.schema.steps import Steps
from perfdoctor.trials.live import WorkerEnded

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
    """The share of the host's own work that is loading."""
    awaiting_share: float
    """The share of its sleep in which it waits for what others load."""
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
    threads_ms: float = 0.0
    """What other threads work for a step, whether the calling one waits for them or not."""


def alone(program: str) -> Conditions:
    """Conditions with nothing on the host, and nothing to be sent to the device."""
    return Conditions(program=program, resident="all")


def program_of(capture: Capture) -> str:
    """Which of the captured programs is run; WorkerEnded if none can be."""
    why = capture.failures.get(AS_IT_IS)
    if why is None:
        return AS_IT_IS
    if not any(NO_CALLBACKS in call.programs for call in capture.calls):
        raise WorkerEnded(why)
    return NO_CALLBACKS


def host_of(calls: StepCalls, steps: Steps | None, by_itself: Replayed, program: str) -> Host:
    """As it was observed. `by_itself`: the step with nothing on the host.

    What a call takes of the processor more than in the replay, whose arguments are flat, is work of
    the host; unless it compiles in each step, then that is what it takes. Of a program whose
    callbacks are left out, what calls take beyond the replay is theirs.
    """
    worked, within = worked_ms(calls), beyond_replay_ms(calls, by_itself, program)
    spins = [before_ms + each for before_ms, each in zip(worked, within, strict=True)]
    blocked = blocked_ms(calls)
    idle_ms, waits, overlap_ms = waiting_for_results(calls, steps, by_itself, worked[0])
    free = calls.free_running(steps.etl_ms) if steps is not None else ()
    if free:  # it waits for its turn, not for what they do
        idle_ms = 0.0
    of_threads_ms = calls.threads_cpu_ms - calls.collecting_beside_ms  # what that costs is seen
    beside_ms = max(0.0, of_threads_ms - cpu_ms(free, of_processes=False))
    in_children_ms = max(0.0, calls.children_cpu_ms - cpu_ms(free, of_processes=True))
    spins[0] -= overlap_ms
    rare_ms = rare_in_run_ms(calls, steps, program)
    rarely_collecting_ms = min(rare_ms, calls.collecting_ms)
    collecting_ms = calls.collecting_ms - rarely_collecting_ms
    between_ms = sum(worked) - collecting_ms
    if calls.runs_ahead:  # what is collected now and then is in none of the usual gaps
        spins[0] += max(0.0, -between_ms)
    idle_ms, awaited_ms, threads_ms = waiting_for_threads(calls, idle_ms, beside_ms)
    loading = loading_share(calls, steps, collecting_ms)
    as_observed = Conditions(
        program=program,
        spin_ms=tuple(spins),
        sleep_ms=tuple(idle_ms * each / max(sum(blocked), LEAST_MS) for each in blocked),
        overlap_ms=overlap_ms,
        waits=waits,
        waits_after=waits_after(calls, steps, by_itself) if waits >= EACH_STEP else (),
        awaited_ms=awaited_ms,
        threads_ms=threads_ms,
        threads_set_pace=calls.threads == 1 and 0 < beside_ms <= calls.time_ms,
        children_ms=in_children_ms,
        children_set_pace=calls.threads == 1 and 0 < in_children_ms <= calls.time_ms,
        children=max(0, calls.children - sum(each.is_process for each in free)),
        restless=round(sum(each.cores for each in free if not each.holds_interpreter)),
        restless_threads=sum(each.holds_interpreter for each in free),
        callers=calls.threads,
    )
    return Host(
        as_observed=as_observed,
        loading_share=loading * max(0.0, between_ms) / max(as_observed.work_ms, LEAST_MS),
        awaiting_share=loading,
        collecting_ms=collecting_ms,
        rare_ms=rare_ms,
        rarely_collecting_ms=rarely_collecting_ms,
        compiling_ms=calls.compiling_ms,
        reading_ms=steps.reading_ms if steps is not None else 0.0,
        threads_ms=beside_ms,
    )


def blocked_ms(calls: StepCalls) -> list[float]:
    """For how long the calling thread is blocked before each call."""
    return [max(0.0, call.before_ms - call.before_cpu_ms) for call in calls.calls]


def waiting_for_results(
    calls: StepCalls, steps: Steps | None, by_itself: Replayed, first_ms: float
) -> tuple[float, float, float]:
    """For how long the calling thread is blocked by something else than a result; the share of the
    steps after which it waits for one; and what it works before it waits. `first_ms`: what it works
    before the first call.

    Where it waits for each step it is blocked for as long as that is computed after the call's
    return, less the work that it does before it waits; whatever else blocks it is no matter of the
    device, and other threads work meanwhile.
    """
    idle_ms = max(0.0, min(sum(blocked_ms(calls)), blocked_at_most_ms(calls)) - calls.delayed_ms)
    is_blocked = idle_ms >= LITTLE * by_itself.waited_ms  # else it works for longer than that
    waits = waiting_share(calls, steps, is_blocked=is_blocked)
    if waits < EACH_STEP:
        return idle_ms, waits, 0.0
    if compiles(calls):  # a program takes longer the first time it is run
        return 0.0, 1.0, 0.0
    most_ms = max(0.0, by_itself.waited_ms - idle_ms) if is_blocked else math.inf
    overlap_ms = min(most_ms, first_ms * hidden_share(steps))
    return max(0.0, idle_ms - by_itself.waited_ms), 1.0, overlap_ms


def waiting_for_threads(
    calls: StepCalls, idle_ms: float, beside_ms: float
) -> tuple[float, float, float]:
    """What the calling thread sleeps; what other threads work of which it waits for the end there;
    and what they work besides. `idle_ms`, `beside_ms`: for how long it is idle, and they work.

    For the time in which they had no core they will have none in the replay either, so it is left
    out of the sleep.
    """
    if calls.threads > 1 or beside_ms <= 0 or idle_ms < LITTLE * calls.time_ms:
        return idle_ms, 0.0, max(0.0, beside_ms - idle_ms)
    return max(idle_ms - calls.threads_delayed_ms, min(idle_ms, beside_ms)), beside_ms, 0.0


def worked_ms(calls: StepCalls) -> list[float]:
    """What the calling thread works before each call: no more in all than the time that there was
    between the calls when nobody looked at arguments, which may be those of other steps, too.
    """
    found = [call.before_cpu_ms for call in calls.calls]
    if calls.between_ms is None or sum(found) <= calls.between_ms:
        return found
    return [each * calls.between_ms / sum(found) for each in found]


def blocked_at_most_ms(calls: StepCalls) -> float:
    """What the calling thread is blocked between its calls at most: what it waits for, another
    thread's calls say, may take longer while we look at arguments.
    """
    if calls.between_ms is None:
        return math.inf
    return max(0.0, calls.between_ms - sum(call.before_cpu_ms for call in calls.calls))


def beyond_replay_ms(calls: StepCalls, by_itself: Replayed, program: str) -> list[float]:
    """What each call takes of the processor more than in the replay. Where something compiles now
    and then, some of the calls may have compiled: then no more than what that leaves of a step.
    """
    if program == NO_CALLBACKS:
        return [0.0] * len(calls.calls)
    inside = by_itself.inside_cpu_ms
    if not inside or compiles(calls):
        inside = tuple(call.inside_cpu_ms for call in calls.calls)
    found = [
        max(0.0, call.inside_cpu_ms - replayed_ms)
        for call, replayed_ms in zip(calls.calls, inside, strict=True)
    ]
    left_ms = max(0.0, calls.time_ms - calls.compiling_ms)
    if calls.compiling_ms <= 0 or sum(found) <= left_ms:
        return found
    return [left_ms * each / sum(found) for each in found]


def rare_in_run_ms(calls: StepCalls, steps: Steps | None, program: str) -> float:
    """What a step takes in the mean for what is done now and then. The calls of a program whose
    callbacks take turns with it at Python's interpreter come in bursts, which says nothing of that
    where no step of the trace stands out.
    """
    is_even = steps is not None and steps.is_traced and steps.outliers == 0
    is_told = not calls.runs_ahead and not (program == NO_CALLBACKS and is_even)
    return max(calls.compiling_ms, calls.rare_ms if is_told else 0.0)


def cpu_ms(restless: Sequence[Restless], *, of_processes: bool) -> float:
    """What those that never rest take of the processor: the processes, or the threads."""
    return sum(each.cpu_ms for each in restless if each.is_process == of_processes)


def compiles(calls: StepCalls) -> bool:
    """Whether something is compiled in each step, or nearly so."""
    return calls.compilations >= OFTEN


def waiting_share(calls: StepCalls, steps: Steps | None, *, is_blocked: bool) -> float:
    """The share of steps after which the host waits for a result. `is_blocked`: whether it is, for
    about as long as the device computes: without a trace, only that tells.
    """
    is_seen = calls.threads == 1 and calls.in_main_thread
    if steps is not None and steps.is_traced and is_seen:
        return steps.synchronized
    return 1.0 if is_blocked and not calls.runs_ahead else 0.0


def waits_after(calls: StepCalls, steps: Steps | None, by_itself: Replayed) -> tuple[int, ...]:
    """After which calls of a step the host waits for what they return: as many as the trace shows
    waits in a step, and those after which it is blocked the longest, but for short blocks. Empty if
    it waits once, works for longer than the device computes, or that is not told.
    """
    blocked = blocked_ms(calls)
    is_seen = calls.threads == 1 and calls.in_main_thread
    if not is_seen or sum(blocked) < LITTLE * by_itself.waited_ms:
        return ()
    if steps is None or not steps.is_traced or not steps.calls.get(steps.function):
        return ()
    waits = round(steps.waits * calls.calls_of(steps.function) / steps.calls[steps.function])
    after = [*blocked[1:], *blocked[:1]]
    places = sorted(range(len(after)), key=after.__getitem__, reverse=True)[:waits]
    found = [place for place in places if after[place] >= LITTLE * max(after)]
    return tuple(sorted(found)) if len(found) > 1 else ()


def hidden_share(steps: Steps | None) -> float:
    """The share of the main thread's own work during which the device computes, at most: what is
    done before the host waits for a result, rather than after that.
    """
    if steps is None or not steps.is_traced:
        return 1.0
    own_ms = steps.time_ms - steps.wait_ms - steps.dispatch_ms
    exposed_ms = steps.exposed_etl_ms + steps.exposed_gc_ms + steps.exposed_logging_ms
    exposed_ms += steps.exposed_other_ms
    return min(1.0, max(0.0, 1 - exposed_ms / own_ms)) if own_ms > 0 else 1.0


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
