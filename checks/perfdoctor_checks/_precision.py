"""float32 in place of float64: what it gains, and how to come to it."""

from perfdoctor import (
    Change,
    Fix,
    Gain,
    Observation,
    Program,
    Steps,
    needed,
    on_cpu,
    place,
    set_variables,
    spared,
)
from perfdoctor_checks._floats import shares_of
from perfdoctor_checks._limits import GOOD_PART, LEAST_SHARE

X64 = "JAX_ENABLE_X64"
"""The environment variable that allows float64."""
NATIVE = ("amx_bf16", "avx512_bf16")
"""Flags of x86 CPUs that multiply bfloat16."""


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
