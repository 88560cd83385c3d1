"""The host waits for each step before it prepares the next.

What it finds
-------------
Results that are read in the loop, such as `float(loss)`, `loss.item()` or `np.asarray(…)`: the host
waits for the step to end, and only then loads the next batch and dispatches the next step.

Why it costs
------------
JAX dispatches asynchronously: the host runs ahead and prepares while the device computes. Reading a
result ends that overlap, and the host's own work is added to each step. Where it has none, reading
costs nothing.

How it is measured
------------------
The trace counts how often a step the main thread waits for a result, and for how long. The rest of
its time is its own work; overlapped, a step would take the longer of this and the device's. The
estimate is their ratio; on a CPU the two share the cores, whose work stays the same. Where it waits
after every second operation that it dispatches, or more often, it reads the elements of arrays one
by one: dispatching is lost with the waiting. What is computed already is read without a wait; that
is seen by the main thread's stack. What reading all at once gains is measured as a bound: the step
alone beside nothing but loading. Results after most calls of a function that a step
calls many times may be what the next call is made of, as actions are, and are a hint.

A loop that sleeps, until a result is ready, say, is told by the source of the line that the main
thread is in while the device idles; the step is replayed without the sleep.

How to fix
----------
Read the loss every 50 steps, or that of the step before; keep running sums on the device. Fetch an
array as a whole before a loop over its elements. Do not sleep in the loop that trains.

References
----------
JAX, "Asynchronous dispatch". Deeplearning4j, "Performance debugging": listeners and their
frequency.
"""

from perfdoctor import (
    Observation,
    Outcome,
    hint,
    issue,
    needed,
    not_applicable,
    of_host_work,
    ok,
    traced,
)
from perfdoctor_checks._asleep import asleep, sleeps
from perfdoctor_checks._elements import at_once, by_elements, read_at_once, seen_reading
from perfdoctor_checks._limits import LEAST_SHARE, MOSTLY
from perfdoctor_checks._operations import asks_in_between, reads_one_by_one
from perfdoctor_checks._waits import (
    FEWER_CALLS,
    answers_others,
    facts,
    fix,
    of_library,
    overlapped,
    round_trips,
    summary,
)

ID = "host-sync"
NEEDS = ("steps|eager",)


def check(observation: Observation) -> Outcome:
    """Compares the step with one whose host and device overlap."""
    if observation.steps is None:
        return by_elements(observation, needed(observation.eager))
    steps = traced(observation.steps)
    if steps.threads > 1:
        return not_applicable("several threads call the model, and each needs its result")
    if answers_others(observation):
        return not_applicable(
            "a thread of its own calls the model, for others that need its results"
        )
    if sleeps(observation, steps):
        return asleep(observation, steps)
    evidence = facts(steps)
    eager = observation.eager
    one_by_one = reads_one_by_one(steps, eager)
    if steps.synchronized < MOSTLY and not one_by_one:
        share = f"{100 * steps.synchronized:.2g} %"
        return ok(f"the host waits for a result in {share} of the steps", *evidence)
    if round_trips(observation, steps):
        return ok("what the host waits for is the state that it sends back", *evidence)
    gain = at_once(steps) if one_by_one else overlapped(observation, steps)
    if gain.speedup < 1 + LEAST_SHARE:
        return ok("the host waits for each step, and has nothing to do meanwhile", *evidence)
    gain = of_host_work(observation, gain)
    if steps.waits_in:
        text = f"{steps.waits_in} waits for the result of each call: {summary(steps)}"
        return hint(text, evidence, [of_library(steps.waits_in)])
    if one_by_one:
        by_stacks = eager.reads if eager is not None and eager.reads_one_by_one else None
        text = seen_reading(by_stacks) if by_stacks is not None else summary(steps)
        text += f"; it reads one by one what {steps.dispatches:.0f} dispatches return"
        return issue(text, evidence, [read_at_once(observation)], gain)
    if asks_in_between(steps):
        why = "the next call may be made of what it reads"
        return hint(f"{summary(steps)}; {why}", evidence, [FEWER_CALLS])
    return issue(summary(steps), evidence, [fix(observation)], gain)
