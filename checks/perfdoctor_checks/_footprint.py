"""Memory that grows, that comes to an end, and that others need."""

from perfdoctor import Evidence, Fix, LiveArrays, Memory, Observation
from perfdoctor_checks._growth import grown, room, step_s
from perfdoctor_checks._limits import GIB, MIB, MINUTE_S, SLIGHT
from perfdoctor_checks._reasons import Reason


def leak(
    observation: Observation, memory: Memory, leaking: list[LiveArrays], rate: float
) -> Reason:
    """What grows, how fast, and when memory ends."""
    each_s, left_s = step_s(observation), room(memory) / rate
    speed = f"{rate / MIB:.1f} MiB a second"
    if each_s is not None:
        speed = f"{rate * each_s * 100 / MIB:.1f} MiB in 100 steps"
    what = "arrays"
    if leaking:
        first = leaking[0]
        shape = f"{first.dtype}[{','.join(map(str, first.shape))}]"
        what = f"arrays of {len(leaking)} shapes" if len(leaking) > 1 else "arrays"
        what += f" (most: {shape}, {first.counts[0]} to {first.counts[-1]} of them)"
    end = f"{left_s / MINUTE_S:.0f} minutes" if left_s >= 2 * MINUTE_S else f"{left_s:.0f} s"
    return f"{what} grow by {speed}: memory ends in {end}", drop(observation, leaking)


def drop(observation: Observation, leaking: list[LiveArrays]) -> Fix:
    """Throughput does not show what this is worth, so that there is nothing to try."""
    workload = observation.target.workload
    if workload is not None and workload.training.keep_every:
        return Fix(summary="keep no old parameters in memory", how="[training] keep_every = 0")
    shape = f" of shape {leaking[0].shape}" if leaking else ""
    return Fix(
        summary=f"drop the arrays{shape} that are no longer needed",
        how="del them, or keep numbers on the host: losses.append(float(loss)) every 100 steps",
    )


def near_limits(observation: Observation, memory: Memory) -> list[Reason]:
    """The host, and each device."""
    host, found = observation.host, []
    limit = host.memory_limit_bytes or host.memory_bytes
    if limit > 0 and max(memory.rss_bytes, limit - memory.available_bytes) >= (1 - SLIGHT) * limit:
        left = f"{memory.available_bytes / GIB:.2f} of {limit / GIB:.1f} GiB are left on the host"
        how = "fewer data workers, less prefetch, a smaller batch; or ask for more memory"
        found.append((left, Fix(summary="take less memory on the host", how=how)))
    for index, device in enumerate(memory.devices):
        peak = max(device.peak_bytes, device.in_use_bytes)
        if device.limit_bytes and peak >= (1 - SLIGHT) * device.limit_bytes:
            share = f"device {index}'s memory was {peak / device.limit_bytes:.0%} full"
            how = "a smaller batch, jax.checkpoint around a block, donate_argnums for the state"
            found.append((share, Fix(summary="take less memory on the device", how=how)))
            break
    return found


def swapped(memory: Memory) -> list[Reason]:
    """What the kernel moved to disk."""
    if memory.swapped_bytes <= SLIGHT * max(memory.rss_bytes, 1):
        return []
    how = "free memory: stop other programs, fewer data workers; then swapoff -a && swapon -a"
    text = f"{memory.swapped_bytes / MIB:.0f} MiB of the training are in swap"
    return [(text, Fix(summary="keep the training out of swap", how=how))]


def starves(observation: Observation, memory: Memory) -> list[Reason]:
    """Our pool beside other processes on a GPU that has nothing left."""
    if not any(device.pool_bytes or device.limit_bytes for device in memory.devices):
        return []
    for gpu in observation.gpus:
        if not gpu.processes or gpu.memory_bytes is None or gpu.memory_used_bytes is None:
            continue
        if gpu.memory_used_bytes >= (1 - SLIGHT) * gpu.memory_bytes:
            names = ", ".join(f"{each.name} ({each.pid})" for each in gpu.processes[:3])
            how = "export XLA_PYTHON_CLIENT_MEM_FRACTION=.4  # a share for each process"
            text = f"GPU {gpu.index} is full, and {names} share it"
            return [(text, Fix(summary="leave the other processes their memory", how=how))]
    return []


def facts(observation: Observation, memory: Memory) -> list[Evidence]:
    """Resident, peak, available, swapped; arrays; devices."""
    limit = observation.host.memory_limit_bytes or observation.host.memory_bytes
    found = [
        Evidence(name, round(size / MIB), "MiB", source)
        for name, size, source in (
            ("resident", memory.rss_bytes, "/proc/<pid>/statm"),
            ("peak", memory.peak_rss_bytes, "VmHWM"),
            ("available", memory.available_bytes, "/proc/meminfo and cgroup"),
            ("limit", limit, "host and cgroup"),
            ("in swap", memory.swapped_bytes, "VmSwap"),
        )
    ]
    if memory.samples:
        first, last = memory.samples[0], memory.samples[-1]
        grew = round((last.array_bytes - first.array_bytes) / MIB, 2)
        window = f"MiB in {last.at_s - first.at_s:.1f} s"
        live = "jax.live_arrays"
        found.append(Evidence("growth of arrays", grew, window, live))
    found += [
        Evidence(
            f"{each.dtype}[{','.join(map(str, each.shape))}]",
            each.counts[-1],
            f"arrays, {each.counts[0]} at first",
            "jax.live_arrays",
        )
        for each in (grown(memory) or memory.arrays)[:3]
        if each.counts
    ]
    return found + [
        Evidence(
            f"device {index} peak",
            round(device.peak_bytes / MIB),
            f"of {(device.limit_bytes or 0) / MIB:.0f} MiB",
            "memory_stats",
        )
        for index, device in enumerate(memory.devices)
    ]
