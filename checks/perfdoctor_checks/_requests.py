"""Requests of several threads to one model: what asking together gains."""

import math

from perfdoctor import (
    Change,
    Evidence,
    Fix,
    Gain,
    Observation,
    Outcome,
    StepCalls,
    Steps,
    estimated,
    hint,
    ok,
    on_cpu,
    spared,
)
from perfdoctor_checks._batches import in_common
from perfdoctor_checks._limits import MOSTLY


def asked_beside(observation: Observation, calls: StepCalls) -> Outcome:
    """Of threads that ask a model which another thread trains, as actors do: a trial decides, if
    more than one of them is in a call at once (Little's law).
    """
    within_ms = sum(call.inside_ms for call in calls.calls)
    function, source = calls.calls[0].function, "the probed calls"
    evidence = [
        Evidence("threads that call", calls.threads, "threads", source),
        Evidence("calls", 1e3 / calls.time_ms if calls.time_ms > 0 else None, "calls/s", source),
        Evidence("latency of a call", within_ms, "ms", source),
    ]
    if within_ms < calls.time_ms:
        return ok(f"{calls.threads} threads share {function}() and rarely meet", *evidence)
    lengths, _ = in_common(calls, None)
    size = f" with {lengths[0]} examples each" if lengths else ""
    summary = f"{calls.threads} threads call {function}() at once{size}: a call takes a thread "
    return hint(f"{summary}{within_ms:.2f} ms", evidence, fixes(observation))


def together(observation: Observation, steps: Steps) -> Gain | None:
    """The gain if one call computed the requests of all threads; None where XLA's count can't tell.

    A call for n threads takes what one takes now, and n - 1 times what grows with the requests:
    their arithmetic and what is done while the device idles. At the low end half of the rest grows
    too, and half of what that gains is counted; the likely gain lies in the middle of both.
    """
    account = observation.executable
    if account is None or not account.flops or not on_cpu(observation) or steps.time_ms <= 0:
        return None
    arithmetic_ms = observation.host.arithmetic_ms(account.flops)
    certain = min(1.0, (arithmetic_ms + steps.idle_ms) / steps.time_ms)

    def shared(growing: float) -> float:
        return max(1.0, steps.threads / (1 + (steps.threads - 1) * growing))

    low, high = 1 + (shared((1 + certain) / 2) - 1) / 2, shared(certain)
    return estimated(math.sqrt(low * high), low, float(steps.threads))


def with_one_dispatch(calls: StepCalls | None, steps: Steps) -> Gain | None:
    """The gain if the threads paid for one dispatch together, where Python's lock is what they wait
    for: so much less is done in turn, at the low end half of it.
    """
    if calls is None or calls.threads < 2 or calls.carries_state:
        return None
    within_ms = sum(call.inside_cpu_ms for call in calls.calls)
    in_turn_ms = within_ms + sum(call.before_cpu_ms for call in calls.calls)
    if in_turn_ms < MOSTLY * calls.time_ms:
        return None
    saved_ms = min(within_ms, calls.time_ms) * (1 - 1 / steps.threads)
    return spared(calls.time_ms, saved_ms, saved_ms / 2, saved_ms)


def facts(steps: Steps, examples: int | None) -> list[Evidence]:
    """Calls, and what one takes for the thread and for the device."""
    trace = "trace"
    rate = 1e3 / steps.time_ms if steps.time_ms > 0 else None
    return [
        Evidence("threads that call", steps.threads, "threads", trace),
        Evidence("calls", rate, "calls/s", "step times"),
        Evidence("latency of a call", steps.call_ms, "ms", trace),
        Evidence("device, a call", steps.device_busy_ms, "ms", trace),
        Evidence("CPU time, a call", steps.cpu_ms, "ms", "/proc/<pid>/stat"),
        Evidence("examples a call", examples, "examples", "leading size of the data arguments"),
    ]


def fixes(observation: Observation) -> list[Fix]:
    """Compute requests together; or spread them over devices."""
    workload = observation.target.workload
    if workload is not None and workload.inference.clients > 1 and not workload.inference.batched:
        return [
            Fix(
                summary="compute the requests of the clients together",
                how="[inference] batched = true",
                change=Change(workload={"inference.batched": True}),
                changes_results="numerics",
            )
        ]
    found = [
        Fix(
            summary="compute the requests that wait in one call, by one thread",
            how="requests = queue.SimpleQueue()  # one thread: answers = model(np.stack(waiting))",
            change=Change(step={"program": "together"}),
            changes_results="numerics",
        )
    ]
    if observation.backend is not None and len(observation.backend.devices) > 1:
        found.append(
            Fix(
                summary="give each device a copy of the model",
                how="copies = [jax.device_put(params, device) for device in jax.devices()]",
            )
        )
    return found
