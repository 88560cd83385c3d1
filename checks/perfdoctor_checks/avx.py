"""XLA may not use the vector instructions that the CPU has.

What it finds
-------------
A limit of XLA's instruction set (`--xla_cpu_max_isa`) below what the CPU offers, a CPU without
AVX2, and instructions that are translated by an emulator.

Why it costs
------------
It depends on the operations. Without AVX2 and FMA, erf takes 17 times as long, softplus 2.8 times,
exact GELU 2.2 times, tanh twice, exp 1.8 times; convolutions and matrix products hardly change, and
AVX2 in place of AVX-512 costs nothing (measured, float32).

How it is measured
------------------
/proc/cpuinfo against XLA_FLAGS. What the limit costs is not in the observation: a trial without it
decides whether this is an issue or stays a hint.

How to fix
----------
Remove `--xla_cpu_max_isa` from XLA_FLAGS; run a jaxlib made for this CPU, not an emulated one.

References
----------
Deeplearning4j, "Performance debugging", CPU and AVX. OpenXLA, `xla/debug_options_flags.cc`.
"""

import re

from perfdoctor import (
    Change,
    Evidence,
    Fix,
    Host,
    Observation,
    Outcome,
    hint,
    not_applicable,
    not_measured,
    ok,
    set_variables,
)

ID = "avx"
NEEDS = ()
X86 = ("x86_64", "AMD64", "i686")
"""Architectures of x86 CPUs, as Python names them."""
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


def check(observation: Observation) -> Outcome:
    """Compares what the CPU has with what XLA is told to use."""
    host = observation.host
    if host.architecture not in X86:
        return not_applicable(f"no x86 CPU ({host.architecture})")
    if observation.backend is None:
        return not_measured(
            observation.not_measured.get("backend", "it is not known what jax computes on")
        )
    if observation.backend.platform != "cpu":
        return not_applicable("the computation does not run on the CPU")
    if host.emulated:
        return hint(
            f"the CPU's instructions are translated by {host.emulated}",
            facts(host, None),
            [Fix(summary="run natively", how="install Python and jaxlib for this CPU's own kind")],
        )
    has = best(host)
    limit = limit_of(observation)
    evidence = facts(host, limit) + slow_operations(observation)
    if limit is not None and LEVELS.index(limit) < LEVELS.index(has):
        summary = f"XLA is limited to {limit}, the CPU has {has}"
        return hint(summary, evidence, [without_limit(observation)])
    if LEVELS.index(has) < LEVELS.index("AVX2"):
        advice = Fix(
            summary="train on another CPU", how="choose a machine with AVX2 (any since 2015)"
        )
        return hint(f"the CPU has {has} and no AVX2", evidence, [advice])
    return ok(f"XLA may use all that the CPU has ({has})", *evidence)


def here(observation: Observation) -> list[Evidence]:
    """The CPU and XLA's limit."""
    return facts(observation.host, limit_of(observation))


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
