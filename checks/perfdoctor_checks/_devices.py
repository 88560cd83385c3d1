"""Devices that compute little or nothing, and what shares the work among them."""

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
    ok,
    set_variables,
)
from perfdoctor_checks._limits import LIMIT_OF_DEVICES

UNEQUAL = 2.0
"""The ratio of two devices' loads from which on they are unequal: a pipeline's stages differ by
less if they were cut with care."""
FLAG = re.compile(r"--xla_force_host_platform_device_count=\S*")
"""The flag that splits the CPU into several devices."""


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
