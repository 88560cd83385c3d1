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

import re

from perfdoctor import (
    Change,
    Evidence,
    Fix,
    Observation,
    Outcome,
    Workload,
    hint,
    needed,
    not_applicable,
    not_measured,
    ok,
    on_cpu,
    set_variables,
    traced,
)
from perfdoctor_checks._limits import LIMIT_OF_DEVICES, SLIGHT

ID = "idle-devices"
NEEDS = ("backend", "steps")
UNEQUAL = 2.0
"""The ratio of two devices' loads from which on they are unequal: a pipeline's stages differ by
less if they were cut with care."""
FLAG = re.compile(r"--xla_force_host_platform_device_count=\S*")
"""The flag that splits the CPU into several devices."""


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


def loads(observation: Observation) -> list[float]:
    """A share for each device; one that is not in the trace did nothing."""
    shares = list(needed(observation.steps).busy_shares)
    if not shares:
        return []
    return shares + [0.0] * (len(needed(observation.backend).devices) - len(shares))


def taken(observation: Observation, device: int) -> bool:
    """Whether somebody else computes on this GPU."""
    gpus = observation.gpus
    return len(gpus) == len(needed(observation.backend).devices) and bool(gpus[device].processes)


def cut_cpu(observation: Observation, evidence: list[Evidence], idle: list[int]) -> Outcome:
    """Devices that share the same cores: well only where all are used, and no more than cores."""
    count, cores = len(needed(observation.backend).devices), observation.host.usable_cores
    if not idle and count <= max(1.0, cores):
        return ok(f"the CPU is split into {count} devices, all at work", *evidence)
    summary = f"the CPU is split into {count} devices, {count - len(idle)} at work"
    return hint(f"{summary}; they share {cores:g} cores", evidence, [whole(observation, idle)])


def whole(observation: Observation, idle: list[int]) -> Fix:
    """One device again; a workload that splits its batches must stop that too."""
    summary, env = "leave the CPU one device", observation.environment
    change: dict[str, str | None] = {}
    if FLAG.search(env.get("XLA_FLAGS", "")):
        rest = " ".join(FLAG.sub("", env["XLA_FLAGS"]).split())
        change["XLA_FLAGS"] = rest or None
    if "JAX_NUM_CPU_DEVICES" in env:
        change["JAX_NUM_CPU_DEVICES"] = None
    workload = observation.target.workload
    if not change:
        return Fix(summary=summary, how='remove jax.config.update("jax_num_cpu_devices", …)')
    how = set_variables(observation, change)
    if workload is not None and workload.training.devices > 1:
        return Fix(
            summary=summary,
            how=f"{how}; [training] devices = 1",
            change=Change(env=change, workload={"training.devices": 1}),
            changes_results="numerics",
        )
    applicable = workload is not None or len(idle) == len(needed(observation.backend).devices) - 1
    return Fix(summary=summary, how=how, change=Change(env=change) if applicable else None)


def split(observation: Observation, count: int) -> Fix:
    """Data parallel over all devices."""
    workload = observation.target.workload
    if workload is not None and can_split(workload, count):
        return Fix(
            summary=f"share each batch among {count} devices",
            how=f"[training] devices = {count}",
            change=Change(workload={"training.devices": count}),
            changes_results="numerics",
        )
    return Fix(
        summary=f"share each batch among {count} devices",
        how=f"batch = jax.device_put(batch, jax.sharding.NamedSharding(jax.make_mesh(({count},), "
        '("batch",)), jax.sharding.PartitionSpec("batch")))',
        changes_results="numerics",
    )


def can_split(workload: Workload, count: int) -> bool:
    """Whether the reference loop can share its batches among so many devices."""
    training = workload.training
    plain = training.jit and training.schedule == "constant" and not training.state_on_host
    divides = training.batch_size % count == 0 and count <= LIMIT_OF_DEVICES
    trains = workload.inference.clients == 0
    return plain and divides and trains and training.devices != count


def evenly() -> Fix:
    """What to do about unequal loads."""
    return Fix(
        summary="give each device the same share",
        how='shard every large array along the mesh: P("batch"); balance the stages of a pipeline',
    )
