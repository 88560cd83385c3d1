"""The machine, and what of it we may use."""

import os
import platform
from pathlib import Path

import psutil

from perfdoctor.kernel import read_text
from perfdoctor.observe.cgroup import memory_limit_bytes, quota_cores
from perfdoctor.schema.surroundings import Host

VECTOR_FLAGS = ("sse", "ssse", "avx", "fma", "f16c", "amx", "neon", "asimd", "sve")
"""How the names of vector instruction sets begin, in /proc/cpuinfo and sysctl."""
CPU_CLOCK = Path("/sys/devices/system/cpu/cpu0/cpufreq")
"""Where Linux tells of the first core's clock."""


def host() -> Host:
    """The machine that we run on."""
    cpu_info = read_text(Path("/proc/cpuinfo"))
    affinity = affinity_cores()
    quota = quota_cores()
    return Host(
        os=f"{platform.system()} {platform.release()}",
        cpu_model=field(cpu_info, "model name") or platform.processor() or platform.machine(),
        architecture=platform.machine(),
        logical_cores=os.cpu_count() or 1,
        usable_cores=min(affinity, quota) if quota else float(affinity),
        affinity_cores=affinity,
        quota_cores=quota,
        cpu_flags=vector_flags(cpu_info),
        emulated=emulation(cpu_info),
        memory_bytes=psutil.virtual_memory().total,
        memory_limit_bytes=memory_limit_bytes(),
        governor=read_text(CPU_CLOCK / "scaling_governor").strip() or None,
        highest_mhz=highest_mhz(),
    )


def highest_mhz() -> float | None:
    """The highest clock that the first core may have."""
    text = read_text(CPU_CLOCK / "cpuinfo_max_freq").strip()
    return int(text) / 1e3 if text.isdigit() else None


def affinity_cores() -> int:
    """Cores that the scheduler may give us."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def vector_flags(cpu_info: str) -> tuple[str, ...]:
    """The vector instruction sets of the first core."""
    flags = (field(cpu_info, "flags") or field(cpu_info, "Features") or "").split()
    return tuple(sorted(flag for flag in flags if flag.startswith(VECTOR_FLAGS)))


def emulation(cpu_info: str) -> str | None:
    """What translates this machine's instructions, if it shows."""
    model = field(cpu_info, "model name") or ""
    if model.startswith(("QEMU Virtual CPU", "QEMU TCG")):
        return model
    return "Rosetta" if "VirtualApple" in model else None


def field(cpu_info: str, name: str) -> str | None:
    """The first value of a field of /proc/cpuinfo."""
    for line in cpu_info.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return None
