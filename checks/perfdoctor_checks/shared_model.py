"""Threads share one model and call it for a request each.

What it finds
-------------
Several threads that call the same jitted function at once, each with few examples: a server with a
client per thread, or actors that ask one policy.

Why it costs
------------
The calls queue for the same device, each with the full cost of a dispatch and of reading weights,
and the threads fight for Python's lock meanwhile. Computed together the requests share all of that:
3 to 8 times the throughput was measured.

How it is measured
------------------
The profiler's timeline names the thread of each call. Threads that mostly sleep between their calls
do not meet, and are no finding. Of what the device takes for a call, only its arithmetic (by XLA's
count) grows with the requests that are computed together; most of the rest is shared. Elsewhere
than on a CPU, for requests of more than 8 examples, and where another function trains meanwhile, a
trial decides: one call with all of them, on the captured step.

How to fix
----------
Put the requests into a queue and let one thread compute all that wait, filled up to one size so
that one program does; or give each device a copy of the model.

References
----------
Deeplearning4j, "Performance debugging", step 7: several threads through one model.
"""

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
    issue,
    needed,
    not_applicable,
    ok,
    on_cpu,
    spared,
)
from perfdoctor_checks._batches import examples_a_call, in_common
from perfdoctor_checks._limits import HANDFUL, MOSTLY, SLIGHT

ID = "shared-model"
NEEDS = ("steps",)


def check(observation: Observation) -> Outcome:
    """Counts the threads that call, and what they call with."""
    steps, calls = needed(observation.steps), observation.calls
    if steps.threads < 2 and calls is not None and calls.threads > 1 and not calls.carries_state:
        return asked_beside(observation, calls)
    if steps.threads < 2:
        return not_applicable(f"one thread calls {steps.function}()")
    examples = examples_a_call(steps, calls)
    evidence = facts(steps, examples)
    if max(steps.cpu_ms, steps.device_busy_ms) < MOSTLY * steps.time_ms:
        return ok(f"{steps.threads} threads share {steps.function}() and rarely meet", *evidence)
    are_small = examples is None or examples <= HANDFUL
    if not are_small and calls is not None and calls.carries_state:
        return ok(f"{steps.threads} threads train, {examples} examples a call", *evidence)
    size = f" with {examples} examples each" if examples else ""
    seen = f": a thread waits {steps.call_ms:.2f} ms for its turn and its answer"
    summary = f"{steps.threads} threads call {steps.function}() at once{size}"
    summary += seen if steps.call_ms > 0 else ""
    gains = [together(observation, steps), with_one_dispatch(observation.calls, steps)]
    gain = max(
        (each for each in gains if each is not None), key=lambda each: each.low, default=None
    )
    if gain is None or gain.low < 1 + SLIGHT or not are_small:  # only a trial can tell
        return hint(summary, evidence, fixes(observation))
    return issue(summary, evidence, fixes(observation), gain)


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
