"""The step calls back to Python.

What it finds
-------------
`jax.pure_callback`, `io_callback`, `jax.debug.print` and `jax.debug.callback` inside the step, and
computations that a setting pins to the CPU beside an accelerator.

Why it costs
------------
The device stops at the call, its arguments are copied to the host, Python computes under its lock,
and the result goes back. About ten times slower than the same in jnp, and nothing logs it.

How it is measured
------------------
The step's program names the callbacks and the lines they stand in; the profiler's timeline says how
often they ran and for how long. A callback that rarely runs costs nothing. The estimate's low end
is half of their time, since other operations may go on meanwhile.

How to fix
----------
Compute it with jnp inside the step; return the value from the step and print or save it outside,
every 100 steps; or put the callback under `jax.lax.cond(step % 100 == 0, …)`.

References
----------
jax#31319 (callbacks ten times slower). JAX, "External callbacks". Deeplearning4j, "Performance
debugging", step 8.
"""

from perfdoctor import Observation, Outcome, hint, issue, needed, ok, on_accelerator
from perfdoctor_checks._callbacks import facts, fix, gain, pinned, summary_of
from perfdoctor_checks._limits import LEAST_SHARE, SLIGHT

ID = "cpu-only-ops"
NEEDS = ("program", "steps")


def check(observation: Observation) -> Outcome:
    """Reads the callbacks from the program and their time from the steps."""
    program, steps = needed(observation.program), needed(observation.steps)
    evidence = facts(program, steps)
    pin = pinned(observation)
    if pin is not None:
        summary = "a setting makes jax compute on the CPU although there is an accelerator"
        return hint(summary, evidence, [pin])
    if not program.callbacks and steps.callbacks <= 0:
        return ok("the step does not call back to Python", *evidence)
    fixes = [fix(observation)]
    if steps.callback_ms > 0 and steps.callback_ms >= LEAST_SHARE * steps.time_ms:
        return issue(summary_of(program, steps), evidence, fixes, gain(steps))
    unseen = steps.callbacks <= 0 or steps.callback_ms <= 0
    if unseen or (steps.callbacks >= SLIGHT and on_accelerator(observation)):
        return hint(summary_of(program, steps), evidence, fixes)
    took = f"{steps.callback_ms:.3f} ms a step"
    return ok(f"calls back to Python {steps.callbacks:.2f} times a step, {took}", *evidence)
