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

from perfdoctor import (
    Change,
    Fix,
    Gain,
    Observation,
    Outcome,
    Program,
    Steps,
    hint,
    issue,
    needed,
    not_applicable,
    ok,
    on_accelerator,
    on_cpu,
    place,
    set_variables,
    spared,
)
from perfdoctor_checks._floats import exact_share, facts, origin, shares_of
from perfdoctor_checks._limits import GOOD_PART, LEAST_SHARE

ID = "dtype"
NEEDS = ("program", "steps")
X64 = "JAX_ENABLE_X64"
"""The environment variable that allows float64."""
NATIVE = ("amx_bf16", "avx512_bf16")
"""Flags of x86 CPUs that multiply bfloat16."""


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


def emulates(observation: Observation, shares: dict[str, float]) -> bool:
    """Whether an x86 CPU must convert what the step computes in bfloat16."""
    host = observation.host
    if not on_cpu(observation) or not host.architecture.startswith("x86"):
        return False
    workload = observation.target.workload
    asked = workload is not None and workload.training.dtype in ("bfloat16", "mixed")
    return not set(NATIVE) & set(host.cpu_flags) and (asked or shares["bf16"] >= GOOD_PART)


def gain(steps: Steps, program: Program, share: float) -> Gain:
    """Half of the device's time on float64, as its arrays are half as long; half of that at least.

    Where all products are narrower, it is only in operations that are cheap beside them: nothing is
    sure then.
    """
    half_ms = min(steps.device_busy_ms, steps.time_ms) * share / 2
    cheap = bool(program.layers) and all(layer.dtype != "f64" for layer in program.layers)
    return spared(steps.time_ms, half_ms, 0.0 if cheap else half_ms / 2, half_ms * 3 / 2)


def fixes(observation: Observation) -> list[Fix]:
    """float32: everywhere, and in the line that widens."""
    places = needed(observation.program).wide_places
    if observation.target.workload is not None or not places:
        return [single(observation)]
    where = place(places[0].file, places[0].line)
    line = Fix(
        summary=f"make its arrays float32 in {where}",
        how=f"dtype=jnp.float32, or .astype(jnp.float32)  # {where}",
        changes_results="numerics",
    )
    return [single(observation), line]


def single(observation: Observation) -> Fix:
    """float32, in the workload or by what a script must write."""
    summary, workload = "compute in float32", observation.target.workload
    if workload is not None and workload.training.dtype != "float32":
        return Fix(
            summary=summary,
            how='[training] dtype = "float32"',
            change=Change(workload={"training.dtype": "float32"}),
            changes_results="numerics",
        )
    wide = shares_of(needed(observation.program))["f64"] >= LEAST_SHARE
    if not wide:
        return Fix(summary=summary, how="dtype=jnp.float32", changes_results="numerics")
    in_environment = X64 in observation.environment
    return Fix(
        summary=summary,
        how=set_variables(observation, {X64: None})
        if in_environment
        else 'jax.config.update("jax_enable_x64", False)',
        change=without_x64(observation),
        changes_results="numerics",
    )


def without_x64(observation: Observation) -> Change | None:
    """The change that switches float64 off in a user's program, wherever it is switched on."""
    if not observation.target.runs_users_code:
        return None
    env = {X64: None} if X64 in observation.environment else {}
    return Change(env=dict(env), settings={"jax_enable_x64": False}, step={"program": "float32"})


def inexact(observation: Observation) -> Fix:
    """The default precision: by removing a variable, or the line that asks for another."""
    name = "JAX_DEFAULT_MATMUL_PRECISION"
    removable = name in observation.environment
    return Fix(
        summary="compute products in the default precision",
        how=set_variables(observation, {name: None})
        if removable
        else 'jax.config.update("jax_default_matmul_precision", "default"); no precision=HIGHEST',
        change=Change(env={name: None}) if removable else None,
        changes_results="numerics",
    )


def mixed(observation: Observation) -> Fix:
    """bfloat16 arithmetic on float32 parameters."""
    applicable = observation.target.workload is not None
    return Fix(
        summary="keep float32 parameters, compute in bfloat16",
        how='[training] dtype = "mixed"' if applicable else "cast to jnp.bfloat16 inside the loss",
        change=Change(workload={"training.dtype": "mixed"}) if applicable else None,
        changes_results="numerics",
    )
