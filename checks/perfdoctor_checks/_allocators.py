"""What allocators of memory are told, and what they have left."""

import re

from perfdoctor import Change, Fix, Observation, on_cpu, set_variables
from perfdoctor_checks._limits import GENEROUS, MIB, SEVERAL, SLIGHT
from perfdoctor_checks._reasons import Reason

MALLOC = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_")
"""Environment variables by which glibc's malloc is told when to give memory back to the kernel."""
TUNABLE = re.compile(r"glibc\.malloc\.(mmap_threshold|trim_threshold|top_pad|mmap_max)=")
"""The same in GLIBC_TUNABLES."""


def allocator(observation: Observation) -> list[Reason]:
    """Settings of glibc's malloc, which serves XLA on the CPU."""
    env = observation.environment
    if not on_cpu(observation) or "malloc" in env.get("LD_PRELOAD", ""):
        return []
    names = [name for name in MALLOC if name in env]
    change: dict[str, str | None] = dict.fromkeys(names)
    tunables = env.get("GLIBC_TUNABLES", "")
    parts = [part for part in tunables.split(":") if part and not TUNABLE.match(part)]
    rest = ":".join(parts)
    if TUNABLE.search(tunables):
        change["GLIBC_TUNABLES"] = rest or None
    thresholds = [env.get(name, "") for name in MALLOC[:2]]
    generous = all(each.isdigit() and int(each) >= GENEROUS for each in thresholds)
    if not change or (generous and "GLIBC_TUNABLES" not in change):
        return []
    fix = Fix(
        summary="let malloc adjust its thresholds itself",
        how=set_variables(observation, change),
        change=Change(env=change),
    )
    return [(f"{', '.join(change)} may give freed buffers back to the kernel at once", fix)]


def on_gpu(observation: Observation) -> list[Reason]:
    """Settings that take the GPU's allocator its pool."""
    if observation.backend is None or observation.backend.platform not in ("gpu", "cuda"):
        return []
    env = observation.environment
    names = []
    if env.get("XLA_PYTHON_CLIENT_PREALLOCATE", "").lower() in ("false", "0"):
        names.append("XLA_PYTHON_CLIENT_PREALLOCATE")
    if env.get("XLA_PYTHON_CLIENT_ALLOCATOR", "").lower() == "platform":
        names.append("XLA_PYTHON_CLIENT_ALLOCATOR")
    if not names:
        return []
    fix = Fix(
        summary="let jax keep a pool of the GPU's memory",
        how=set_variables(observation, dict.fromkeys(names)),
        change=Change(env=dict.fromkeys(names)),
    )
    settings = ", ".join(f"{name}={env[name]}" for name in names)
    return [(f"{settings}: the GPU's memory is asked for piece by piece", fix)]


def in_pieces(observation: Observation) -> list[Reason]:
    """Devices whose free memory is in small blocks."""
    for index, device in enumerate(observation.memory.devices if observation.memory else ()):
        pool, largest = device.pool_bytes or device.limit_bytes, device.largest_free_bytes
        if pool is None or largest is None:
            continue
        free = pool - device.in_use_bytes
        if free > max(SLIGHT * pool, SEVERAL * largest):
            text = f"device {index} has {free / MIB:.0f} MiB free, {largest / MIB:.0f} in one piece"
            fix = Fix(
                summary="let CUDA's own allocator join the pieces, or preallocate the pool",
                how="export XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async",
            )
            return [(text, fix)]
    return []
