"""Vector instructions: what the CPU has, and what XLA may use of it."""

import re

from perfdoctor import Change, Evidence, Fix, Host, Observation, set_variables

LEVELS = ("SSE4_2", "AVX", "AVX2", "AVX512")
"""What `--xla_cpu_max_isa` takes, from slow to fast; longer names (AVX512_VNNI) count as AVX512."""
LIMIT = re.compile(r"--xla_cpu_max_isa=(\w+)")
"""The flag that limits XLA to older instructions."""
VECTORISED = (
    "exponential",
    "tanh",
    "erf",
    "log",
    "logistic",
    "log_plus_one",
    "exponential_minus_one",
)
"""Operations that are slow without FMA."""


def best(host: Host) -> str:
    """The highest level that the CPU offers."""
    if "avx512f" in host.cpu_flags:
        return "AVX512"
    return "AVX2" if "avx2" in host.cpu_flags else "AVX" if "avx" in host.cpu_flags else "SSE4_2"


def limit_of(observation: Observation) -> str | None:
    """The last limit in XLA_FLAGS, which is the one in force."""
    found = LIMIT.findall(observation.environment.get("XLA_FLAGS", ""))
    if not found:
        return None
    level = "AVX512" if found[-1].startswith(("AVX512", "AMX")) else found[-1].upper()
    return level if level in LEVELS else None


def facts(host: Host, limit: str | None) -> list[Evidence]:
    """The CPU's instruction sets, and the limit."""
    flags = [flag for flag in host.cpu_flags if flag.startswith(("avx", "fma", "sse4", "amx"))]
    return [
        Evidence("CPU", host.cpu_model, "", "/proc/cpuinfo"),
        Evidence("vector sets", " ".join(flags), "", "/proc/cpuinfo"),
        Evidence("XLA's limit", limit, "", "XLA_FLAGS"),
    ]


def slow_operations(observation: Observation) -> list[Evidence]:
    """Operations in the step that a limit hurts."""
    if observation.program is None:
        return []
    counts = observation.program.operations
    return [
        Evidence(name, count, "operations", "StableHLO")
        for operation, count in counts.items()
        if (name := operation.rpartition(".")[2]) in VECTORISED
    ]


def without_limit(observation: Observation) -> Fix:
    """These XLA_FLAGS, without the limit."""
    flags = LIMIT.sub("", observation.environment["XLA_FLAGS"]).split()
    env = {"XLA_FLAGS": " ".join(flags) or None}
    return Fix(
        summary="let XLA use what the CPU has",
        how=set_variables(observation, env),
        change=Change(env=env),
        changes_results="numerics",
    )
