"""Some devices compute while others idle.

What it finds
-------------
Accelerators that are there and get no work, or far less than others; and "devices" on the CPU that
a flag has made for a test and that stayed on.

Why it costs
------------
Each idle accelerator is a part of the throughput that is paid for and not used. Devices made of one
CPU share its cores: they only cut XLA's pool of threads into pieces, 1.2 to 1.4 times slower.

How it is measured
------------------
For each device the profiler's timeline gives the share of the time in which it computed. The gain
of a change depends on what the devices must exchange: a trial decides.

How to fix
----------
Split the batch: `jax.device_put(batch, NamedSharding(mesh, P("batch")))` and call the same jitted
step. On a CPU remove `--xla_force_host_platform_device_count` from XLA_FLAGS.

References
----------
Deeplearning4j, "Performance debugging", step 11: use all GPUs. JAX, "Distributed arrays and
automatic parallelization".
"""

from perfdoctor import (
    Evidence,
    Observation,
    Outcome,
    hint,
    needed,
    not_applicable,
    not_measured,
    ok,
    on_cpu,
    traced,
)
from perfdoctor_checks._devices import UNEQUAL, cut_cpu, evenly, loads, split, taken
from perfdoctor_checks._limits import SLIGHT

ID = "idle-devices"
NEEDS = ("backend", "steps")


def check(observation: Observation) -> Outcome:
    """Compares the devices' loads."""
    devices = needed(observation.backend).devices
    if len(devices) < 2:
        return not_applicable("there is one device")
    shares = loads(observation)
    busiest = max(shares, default=0.0)
    traced(observation.steps)
    if busiest <= 0:
        return not_measured("the trace does not tell which device computes")
    evidence = [
        Evidence(f"device {each.id} busy", round(share, 3), "share", "trace")
        for each, share in zip(devices, shares, strict=False)
    ]
    idle = [each for each, share in enumerate(shares) if share < SLIGHT * busiest]
    idle = [each for each in idle if not taken(observation, each)]
    if on_cpu(observation):
        return cut_cpu(observation, evidence, idle)
    if idle:
        at_work = len(shares) - len(idle)
        summary = f"{at_work} of {len(shares)} devices at work, the others idle"
        return hint(summary, evidence, [split(observation, len(shares))])
    working = [share for share in shares if share >= SLIGHT * busiest]
    if busiest > UNEQUAL * min(working):
        summary = f"one device computes {busiest:.0%} of the time, another {min(working):.0%}"
        return hint(summary, evidence, [evenly()])
    return ok(f"all {len(working)} devices at work", *evidence)
