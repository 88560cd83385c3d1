"""The step is dispatched operation by operation.

What it finds
-------------
A training step, or a part of it, that runs without `jax.jit`: many small dispatches a step, and a
device that idles between them.

Why it costs
------------
Each operation passes through Python and is launched by itself, in 20 to 100 µs, and XLA can't fuse
it with its neighbours. Small steps lose 5 to 170 times, large matrix products about twice; flax's
own VAE example gains 13 times from one `@jax.jit`.

How it is measured
------------------
The trace counts the jitted functions that the main thread calls a step (an operation outside `jit`
is one), and the time in which it is in or between these calls while the device idles. A step of a
few jitted functions is a style, not a fault, and so are many calls of one that does a good part of
the work, as an actor's policy; where the device hardly waits for the calls, nothing is lost. What
is dispatched to read results one by one is a matter of host-sync.

What it gains is measured where it can be: the function whose calls dispatch the operations is known
from the main thread's stack, and is run as one program after the script has ended. What the device
computes in other jitted functions is left to do: where it is a part of the step, the gain is an
estimate. Where the operations surround a jitted step and hold little work, the gain is a bound: the
step alone beside nothing but loading.

JAX's own control flow (`jax.lax.scan`, `while_loop`, `cond`) is compiled at each call outside of
`jit` whose body is made anew. Where that goes on while the program trains, the compilations are
what is measured; a set-up that does so has ended before.

How to fix
----------
Put `@jax.jit` on the whole step: loss, gradients and the optimiser's update. With equinox
`@eqx.filter_jit`, with flax `@nnx.jit`.

References
----------
JAX, "Just-in-time compilation"; "Gradient transformations and the training step" in optax's guide.
"""

from perfdoctor import Observation, Outcome, issue, needed, not_applicable, not_measured, ok, traced
from perfdoctor_checks._limits import HANDFUL, LEAST_SHARE, SLIGHT
from perfdoctor_checks._operations import (
    compiled_again,
    dispatching_ms,
    loose,
    lost_between_ms,
    reads_one_by_one,
    unfused,
    where,
)
from perfdoctor_checks._unjitted import (
    by_operations,
    compiles_its_loops,
    facts,
    fix,
    jitted,
    not_fused,
)

ID = "missing-jit"
NEEDS = ("compiles",)


def check(observation: Observation) -> Outcome:
    """Reads how many dispatches the device waits for; without steps, what is compiled in them."""
    if any(each.name == "jax_disable_jit" and each.value for each in observation.settings or ()):
        return not_applicable("jax_disable_jit is on, so nothing is jitted: see debug-flags")
    again = compiled_again(needed(observation.compiles), observation.steps)
    if again:
        return compiles_its_loops(observation, again)
    steps, eager = observation.steps, observation.eager
    if steps is None and eager is None:
        return not_measured(observation.not_measured.get("steps", "no steps were seen"))
    if steps is None or (eager is not None and eager.is_saved and not eager.is_step):
        return by_operations(observation)
    evidence = facts(traced(steps))
    calls = f"{steps.dispatches:.3g} jitted call{'s' * (round(steps.dispatches) != 1)} a step"
    if loose(steps) * steps.dispatches <= HANDFUL:
        return ok(calls, *evidence)
    if reads_one_by_one(steps, eager):
        return ok(f"{calls}, most of them to read results one by one: see host-sync", *evidence)
    if unfused(steps) >= SLIGHT:
        return not_fused(observation, steps, evidence)
    if dispatching_ms(steps) < LEAST_SHARE * steps.time_ms:
        return ok(f"{calls}, whose dispatch the device hardly waits for", *evidence)
    share = lost_between_ms(steps) / steps.time_ms if steps.time_ms > 0 else 0.0
    summary = (
        f"{steps.dispatches:.0f} dispatches a step: it is not jitted as a whole, and the device "
        f"idles {min(1.0, share):.0%} of the time between them{where(steps)}"
    )
    return issue(summary, evidence, [fix(observation)], jitted(steps))
