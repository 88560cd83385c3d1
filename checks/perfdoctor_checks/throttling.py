"""The CPU or the GPU is held below its speed.

What it finds
-------------
A container's CPU quota that stops the training for parts of each period; a GPU whose clock is held
down by heat or by its power limit; a CPU whose frequency governor keeps its clock low.

Why it costs
------------
A quota of 2 cores on a machine of 8 lets eight threads run for a quarter of each 100 ms, and then
stops them all. A GPU at 60 % of its clock computes at 60 % of its speed.

How it is measured
------------------
Over the traced window: the time for which the control group's quota held threads back (cpu.stat,
summed over the CPUs), beside what they used. The GPU's clock and the reasons that NVML gives for
it; an idle GPU's low clock is none. The clock of the fastest core against the highest that the CPU
has: the governor "powersave" alone is no finding, intel_pstate's reaches the highest clock too.

How to fix
----------
Raise the quota (`docker run --cpus`, a pod's CPU limit), or start as many threads as it allows;
cool the GPU or raise its limit (`nvidia-smi -pl`); `cpupower frequency-set -g performance`.

References
----------
Linux, "CFS bandwidth control"; NVML, clocks event reasons; Linux, "CPU performance scaling".
Deeplearning4j, "Performance debugging", CPU throttling.
"""

from perfdoctor import Evidence, Fix, Observation, Outcome, hint, issue, needed, ok
from perfdoctor_checks._clocks import (
    clock_share,
    cores,
    cpu_facts,
    gpu_facts,
    gpus,
    held_cores,
    limits_of,
    more_cores,
    quota_fix,
    quota_summary,
    slow_cpu,
    slow_gpu,
)
from perfdoctor_checks._limits import LEAST_SHARE, SLIGHT

ID = "throttling"
NEEDS = ("load", "steps")


def check(observation: Observation) -> Outcome:
    """The quota first, then the GPUs, then the governor."""
    load, host = needed(observation.load), observation.host
    evidence = [*cpu_facts(load, host), *gpu_facts(observation)]
    if held_cores(load) / cores(host) >= LEAST_SHARE:
        return issue(quota_summary(load, host), evidence, [quota_fix(host)], more_cores(load, host))
    slowed = min(gpus(observation), key=clock_share, default=None)
    if slowed is not None and clock_share(slowed) < 1 - SLIGHT:
        return slow_gpu(observation, slowed, evidence)
    if host.governor == "powersave" and slow_cpu(load, host):
        summary = (
            f'the governor "powersave" holds the CPU at {load.clock_mhz:.0f} of '
            f"{host.highest_mhz:.0f} MHz"
        )
        faster = Fix(
            summary="let the CPU use its highest clock",
            how="sudo cpupower frequency-set -g performance",
        )
        return hint(summary, evidence, [faster])
    return ok("nothing holds the CPU or the GPU below its speed", *evidence)


def here(observation: Observation) -> list[Evidence]:
    """The limits of this machine's CPU and GPUs."""
    return [*limits_of(observation.host), *gpu_facts(observation)]
