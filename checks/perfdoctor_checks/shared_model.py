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

from perfdoctor import Observation, Outcome, hint, issue, needed, not_applicable, ok
from perfdoctor_checks._batches import examples_a_call
from perfdoctor_checks._limits import HANDFUL, MOSTLY, SLIGHT
from perfdoctor_checks._requests import asked_beside, facts, fixes, together, with_one_dispatch

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
