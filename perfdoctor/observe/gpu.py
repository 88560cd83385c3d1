"""NVIDIA GPUs, as the driver reports them through NVML."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psutil
import pynvml

from perfdoctor.schema.surroundings import Gpu, GpuProcess

THROTTLE_REASONS = {
    "gpu_idle": 0x1,
    "applications_clocks_setting": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
    "display_clock_setting": 0x100,
}
"""nvml.h, nvmlClocksThrottleReasons."""


def gpus(ours: frozenset[int] = frozenset()) -> tuple[Gpu, ...]:
    """All GPUs; none where there is no driver. `ours`: processes that are not listed."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        return tuple(gpu(index, ours) for index in range(pynvml.nvmlDeviceGetCount()))
    except pynvml.NVMLError:
        return ()
    finally:
        pynvml.nvmlShutdown()


def gpu(index: int, ours: frozenset[int]) -> Gpu:
    """One GPU; what a driver does not support is left out."""
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    total = used = utilisation = None
    with suppress(pynvml.NVMLError):  # unified memory (Grace, Jetson) has no figures of its own
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        total, used = memory.total, memory.used
    with suppress(pynvml.NVMLError):
        utilisation = pynvml.nvmlDeviceGetUtilizationRates(handle).gpu
    cuda = pynvml.nvmlSystemGetCudaDriverVersion()
    return Gpu(
        index=index,
        name=text(pynvml.nvmlDeviceGetName(handle)),
        memory_bytes=total,
        memory_used_bytes=used,
        utilisation_percent=utilisation,
        driver=text(pynvml.nvmlSystemGetDriverVersion()),
        cuda_driver_version=f"{cuda // 1000}.{cuda % 1000 // 10}",
        clock_mhz=asked(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM),
        highest_clock_mhz=asked(pynvml.nvmlDeviceGetMaxClockInfo, handle, pynvml.NVML_CLOCK_SM),
        power_w=watts(asked(pynvml.nvmlDeviceGetPowerUsage, handle)),
        power_limit_w=watts(asked(pynvml.nvmlDeviceGetEnforcedPowerLimit, handle)),
        temperature_c=asked(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
        throttle_reasons=reasons(
            asked(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle) or 0
        ),
        processes=processes(handle, ours),
    )


def asked(question: Callable[..., int], *arguments: Any) -> int | None:
    """An answer of the driver; None if it does not support the question."""
    with suppress(pynvml.NVMLError):
        return question(*arguments)
    return None


def watts(milliwatts: int | None) -> float | None:
    """NVML counts in thousandths."""
    return None if milliwatts is None else milliwatts / 1e3


def reasons(bits: int) -> tuple[str, ...]:
    """The names of the bits that are set in NVML's mask of throttle reasons."""
    return tuple(name for name, bit in THROTTLE_REASONS.items() if bits & bit)


def processes(handle: Any, ours: frozenset[int]) -> tuple[GpuProcess, ...]:
    """The processes that compute on a GPU, without our own."""
    with suppress(pynvml.NVMLError):
        return tuple(
            GpuProcess(pid=each.pid, name=name_of(each.pid), memory_bytes=each.usedGpuMemory)
            for each in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
            if each.pid not in ours
        )
    return ()


def name_of(pid: int) -> str:
    """A process's name; a question mark where it cannot be seen (another container's)."""
    with suppress(psutil.Error):
        return str(psutil.Process(pid).name())
    return "?"


def text(value: Any) -> str:
    """Older bindings answer bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)
