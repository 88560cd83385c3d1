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

How to fix
----------
Read the loss every 50 steps, or that of the step before; keep running sums on the device. Fetch an
array as a whole before a loop over its elements.

References
----------
JAX, "Asynchronous dispatch". Deeplearning4j, "Performance debugging": listeners and their
frequency.
"""

from perfdoctor import (
    Change,
    Evidence,
    Fix,
    Gain,
    Observation,
    Outcome,
    Steps,
    hint,
    issue,
    needed,
    not_applicable,
    ok,
    on_cpu,
    place,
    spared,
    traced,
)
from perfdoctor_checks._copies import from_host_again
from perfdoctor_checks._elements import at_once, by_elements, read_at_once, seen_reading
from perfdoctor_checks._limits import LEAST_SHARE, MIB, MOSTLY
from perfdoctor_checks._operations import asks_in_between, reads_one_by_one

ID = "host-sync"
NEEDS = ("steps|eager",)
RARELY = 50
"""Steps: as often as a loss is worth reading."""
FEWER_CALLS = Fix(
    summary="compute more in each call, so that it waits for fewer",
    how="step several environments at once; or write them in jax, and jax.lax.scan over the steps",
)
"""The fix for results that the next call is made of."""


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


def answers_others(observation: Observation) -> bool:
    """Whether the step carries no state from call to call, beside the main thread: a server's."""
    calls = observation.calls
    if calls is None or calls.in_main_thread:
        return False
    return not calls.carries_state


def of_library(name: str) -> Fix:
    """A library's own way, which costs nothing where the host prepares in another thread."""
    how = "jax.jit, with eqx.partition and eqx.combine" if name == "equinox" else "jax.jit"
    return Fix(summary=f"call the step without {name}'s own wrapper", how=how)


def round_trips(observation: Observation, steps: Steps) -> bool:
    """Whether the state, or where no calls were seen most of it, comes from the host: a matter of
    transfers, not of reading.
    """
    calls = observation.calls
    if calls is not None:
        leaves = from_host_again(steps, calls)
        return sum(leaf.bytes for leaf in leaves if leaf.role == "state") >= MIB
    program = observation.program
    if program is None:
        return False
    data, all_of_it = len(program.data), len(program.arguments)
    return (data + all_of_it) / 2 < steps.uploads <= 2 * all_of_it


def own_work_ms(steps: Steps) -> float:
    """What the host does besides waiting."""
    return max(0.0, steps.time_ms - steps.wait_ms)


def overlapped(observation: Observation, steps: Steps) -> Gain:
    """The gain if the longer of device and host were all that a step takes; a CPU's cores they
    share. Twice as much at most: threads that sleep must be woken, which takes what is not seen.
    """
    longer_ms = max(steps.device_busy_ms, own_work_ms(steps))
    if on_cpu(observation):
        longer_ms = max(longer_ms, steps.cpu_ms / max(1.0, observation.host.usable_cores))
    idle_ms = max(0.0, steps.time_ms - longer_ms)
    return spared(steps.time_ms, idle_ms, idle_ms / 2, 2 * idle_ms)


def summary(steps: Steps) -> str:
    """How often, where, and what it holds up."""
    text = f"the host waits for a result {steps.waits:.1f} times a step"
    if steps.wait_places:
        where = steps.wait_places[0]
        text += f", most in {where.function}() ({place(where.file, where.line)})"
    return (
        f"{text}; meanwhile nothing is prepared, and the device idles {steps.idle_ms:.2f} ms a step"
    )


def facts(steps: Steps) -> list[Evidence]:
    """What the finding rests on."""
    return [
        Evidence("waits", round(steps.waits, 2), "a step", "trace"),
        Evidence("waiting", steps.wait_ms, "ms/step", "trace"),
        Evidence("host's own work", own_work_ms(steps), "ms/step", "trace"),
        Evidence("device busy", steps.device_busy_ms, "ms/step", "trace"),
        *(
            Evidence(
                f"waits in {each.function}",
                round(each.share, 3),
                "share",
                place(each.file, each.line),
            )
            for each in steps.wait_places
        ),
    ]


def fix(observation: Observation) -> Fix:
    """Read more rarely."""
    workload = observation.target.workload
    if workload is not None and 0 < workload.training.log_every < RARELY:
        return Fix(
            summary=f"read the loss every {RARELY} steps",
            how=f"[training] log_every = {RARELY}",
            change=Change(workload={"training.log_every": RARELY}),
        )
    return Fix(
        summary=f"read results every {RARELY} steps, or those of the step before",
        how=f"if step % {RARELY} == 0: print(float(loss))",
        change=Change(step={"waits": 1 / RARELY}),
    )
