"""The arithmetic is wider than training needs.

What it finds
-------------
A step that computes in double precision (float64). As hints: on an accelerator, float32 where
bfloat16 would do, and matrix products in the HIGHEST precision; on a CPU without instructions for
it, bfloat16.

Why it costs
------------
A float64 takes twice the memory and at least twice the time of a float32, far more on consumer
GPUs. It comes in through `jax_enable_x64` and one float64 array, often a NumPy default. HIGHEST
makes three to six passes of one on a GPU or TPU; on a CPU it changes nothing. A CPU that has no
bfloat16 converts each number to float32 and back.

How it is measured
------------------
The step's program (StableHLO) says how many elements it computes in which type, in which lines it
widens to float64, which arguments are float64, and the precision of each product. The estimate
takes the guide's figure, half of the device's time; a trial measures.

How to fix
----------
Leave `jax_enable_x64` off, or pass `dtype=jnp.float32` where arrays are made. On GPUs and TPUs keep
float32 parameters and compute in bfloat16; leave `jax_default_matmul_precision` alone. On CPUs
without bfloat16 compute in float32.

References
----------
Deeplearning4j, "Performance debugging", step 6. JAX, "Common gotchas": double (64 bit) precision;
`jax.lax.Precision`.
"""

from perfdoctor import Observation, Outcome, hint, issue, needed, not_applicable, ok, on_accelerator
from perfdoctor_checks._floats import exact_share, facts, origin, shares_of
from perfdoctor_checks._limits import GOOD_PART, LEAST_SHARE
from perfdoctor_checks._precision import emulates, fixes, gain, inexact, mixed, single

ID = "dtype"
NEEDS = ("program", "steps")


def check(observation: Observation) -> Outcome:
    """Reads the types and precisions from the program."""
    program, steps = needed(observation.program), needed(observation.steps)
    shares = shares_of(program)
    evidence = facts(observation, program, shares)
    if shares["f64"] >= LEAST_SHARE:
        return issue(
            f"{shares['f64']:.0%} of the step's floating-point elements are float64"
            + origin(program),
            evidence,
            fixes(observation),
            gain(steps, program, shares["f64"]),
        )
    if not any(shares.values()):
        return not_applicable("the step computes no floating-point numbers")
    main = max(shares, key=lambda kind: shares[kind])
    if on_accelerator(observation) and exact_share(program) >= GOOD_PART:
        share = exact_share(program)
        summary = (
            f"{share:.0%} of the products' work is done in a higher precision than the default"
        )
        further = [mixed(observation)] if main == "f32" else []
        return hint(summary, evidence, [inexact(observation), *further])
    if main == "f32" and on_accelerator(observation):
        return hint(
            "computes in float32; bfloat16 may be faster here", evidence, [mixed(observation)]
        )
    if emulates(observation, shares):
        summary = "computes in bfloat16, for which this CPU has no instructions"
        return hint(summary, evidence, [single(observation)])
    return ok(f"computes in {main}", *evidence)
