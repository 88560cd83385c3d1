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

from perfdoctor import Evidence, Fix, Observation, Outcome, hint, not_applicable, not_measured, ok
from perfdoctor_checks._isa import LEVELS, best, facts, limit_of, slow_operations, without_limit

ID = "avx"
NEEDS = ()
X86 = ("x86_64", "AMD64", "i686")
"""Architectures of x86 CPUs, as Python names them."""


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
