"""The arithmetic is wider than training needs.

What it finds
-------------
A step that computes in double precision (float64); and, on an accelerator, one that computes in
float32 where bfloat16 would do (a hint).

Why it costs
------------
A float64 takes twice the memory and at least twice the time of a float32, far more on consumer
GPUs. It comes in through `jax_enable_x64` and one float64 array, often a NumPy default.

How it is measured
------------------
The step's program (StableHLO) says how many elements it computes in which type, and which arguments
are float64. The estimate takes the guide's figure, half of the device's time; a trial measures.

How to fix
----------
Leave `jax_enable_x64` off, or pass `dtype=jnp.float32` where arrays are made. On GPUs and TPUs keep
float32 parameters and compute in bfloat16.

References
----------
Deeplearning4j, "Performance debugging", step 6. JAX, "Common gotchas": double (64 bit) precision.
"""

from perfdoctor import (
    Change,
    Evidence,
    Fix,
    Gain,
    Observation,
    Outcome,
    Program,
    Steps,
    estimated,
    hint,
    issue,
    needed,
    not_applicable,
    ok,
)

ID = "dtype"
NEEDS = ("program", "steps")
FLOATS = ("f64", "f32", "bf16", "f16")
LEAST_SHARE = 0.01
"""Of the elements: scalars such as a learning rate cost nothing."""


def check(observation: Observation) -> Outcome:
    """Reads the share of float64 from the program."""
    program, steps = needed(observation.program), needed(observation.steps)
    shares = shares_of(program)
    evidence = facts(observation, program, shares)
    if shares["f64"] >= LEAST_SHARE:
        return issue(
            f"{shares['f64']:.0%} of the step's floating-point elements are float64",
            evidence,
            [fix(observation)],
            gain(steps, shares["f64"]),
        )
    if not any(shares.values()):
        return not_applicable("the step computes no floating-point numbers")
    main = max(FLOATS, key=lambda kind: shares[kind])
    on_accelerator = observation.backend is not None and observation.backend.platform != "cpu"
    if main == "f32" and on_accelerator:
        return hint(
            "computes in float32; bfloat16 may be faster here", evidence, [mixed(observation)]
        )
    return ok(f"computes in {main}", *evidence)


def shares_of(program: Program) -> dict[str, float]:
    """Of the floating-point elements that the program computes, the share of each type."""
    counts = {kind: program.elements_by_dtype.get(kind, 0) for kind in FLOATS}
    total = max(1, sum(counts.values()))
    return {kind: count / total for kind, count in counts.items()}


def facts(observation: Observation, program: Program, shares: dict[str, float]) -> list[Evidence]:
    """Shares, float64 arguments, and who switched x64 on."""
    found = [
        Evidence(name=kind, value=round(share, 3), unit="share of elements", source="StableHLO")
        for kind, share in shares.items()
        if share > 0
    ]
    wide = [argument.name for argument in program.arguments if argument.dtype == "f64"]
    if wide:
        names = ", ".join(wide[:3]) + (", …" if len(wide) > 3 else "")
        found.append(
            Evidence(name="float64 arguments", value=len(wide), unit="arguments", source=names)
        )
    for setting in observation.settings or ():
        if setting.name == "jax_enable_x64":
            source = f"set in the {setting.origin}"
            found.append(Evidence(name=setting.name, value=setting.value, unit="", source=source))
    return found


def gain(steps: Steps, share: float) -> Gain:
    """Half of the device's time on float64, a quarter at least, three quarters at most."""
    wide_ms = min(steps.device_busy_ms, steps.time_ms) * share

    def without(part: float) -> float:
        return steps.time_ms / (steps.time_ms - part * wide_ms)

    return estimated(speedup=without(0.5), low=without(0.25), high=without(0.75))


def fix(observation: Observation) -> Fix:
    """float32, in the workload or by JAX's setting."""
    if observation.target.workload is None:
        return Fix(
            summary="compute in float32",
            how='jax.config.update("jax_enable_x64", False)',
            changes_results="numerics",
        )
    return Fix(
        summary="compute in float32",
        how='[training] dtype = "float32"',
        change=Change(workload={"training.dtype": "float32"}),
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
