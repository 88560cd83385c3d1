"""Memory runs short.

What it finds
-------------
jax.Arrays that pile up from step to step, memory of the host or a device that is nearly used up,
parts of the training that were moved to swap, and a pool on a GPU that leaves others nothing.

Why it costs
------------
A run whose memory grows ends before it is done. Near the limit the kernel drops caches and swaps,
which makes a step wait for the disk; XLA recomputes and splits what it could have kept.

How it is measured
------------------
Resident memory, and live arrays that are computed, by shape and type, several times over the traced
window. Arrays of a shape that hardly ever become fewer are a leak; resident memory that grows is no
proof, since caches fill, and the profiler keeps its events there. The rate is projected to what is
left.

How to fix
----------
Drop what is no longer needed: `losses.append(float(loss))` every 100 steps in place of the array;
no lists of old parameters or batches. Smaller batches, or `jax.checkpoint`, lower the peak.

References
----------
Deeplearning4j, "Performance debugging", memory: heap and off-heap. JAX, "Device memory profiling",
"GPU memory allocation".
"""

from itertools import pairwise

from perfdoctor import (
    Evidence,
    Fix,
    LiveArrays,
    Memory,
    Observation,
    Outcome,
    hint,
    issue,
    needed,
    ok,
)

ID = "memory"
NEEDS = ("memory",)
MIB, GIB = 2**20, 2**30
FEWEST_SAMPLES = 4
"""Fewer can rise by chance: batches on their way come and go."""
FALLS = 0.1
"""Of the growth: arrays that pile up beside some of the same shape on their way through a step
(23, 29, 33, 34, 38, 37, 39 in one of six runs of the sample memory_leak)."""
LEAST_GROWTH = MIB
"""Per 100 steps, or a second: a run that loses less ends before it matters."""
FULL = 0.95
"""Of a limit: what is left does not hold another copy of a batch or a state."""
SWAPPED = 0.05
"""Of resident memory: less is what a program never uses again."""
SOON_S = 3600.0
"""A training run of unknown length lasts an hour at least."""
Reason = tuple[str, Fix]


def check(observation: Observation) -> Outcome:
    """A leak first, then limits."""
    memory = needed(observation.memory)
    evidence = facts(observation, memory)
    leaking = grown(memory)
    rate = growth(memory, leaking)
    reasons = near_limits(observation, memory) + swapped(memory) + starves(observation, memory)
    if rate >= least(observation):
        reasons = [leak(observation, memory, leaking, rate), *reasons]
        if ends(observation, memory, rate):
            return issue(joined(reasons), evidence, [fix for _, fix in reasons])
    if reasons:
        return hint(joined(reasons), evidence, [fix for _, fix in reasons])
    left = f"{memory.available_bytes / GIB:.1f} GiB are left"
    return ok(f"takes {memory.rss_bytes / GIB:.1f} GiB, {left}", *evidence)


def here(observation: Observation) -> list[Evidence]:
    """The memory of this machine, and what of it we may use."""
    host = observation.host
    return [
        Evidence(name="memory", value=round(host.memory_bytes / GIB, 1), unit="GiB", source="host"),
        Evidence(
            name="limit",
            value=round((host.memory_limit_bytes or host.memory_bytes) / GIB, 1),
            unit="GiB",
            source="cgroup" if host.memory_limit_bytes else "host",
        ),
    ]


def joined(reasons: list[Reason]) -> str:
    """One sentence."""
    return "; ".join(text for text, _ in reasons)


def rises(counts: tuple[int, ...]) -> bool:
    """Hardly ever less, three times more at least, and still in the window's second half."""
    steps = [later - earlier for earlier, later in pairwise(counts)]
    if len(counts) < FEWEST_SAMPLES or sum(step > 0 for step in steps) < 3:
        return False
    fell = -sum(step for step in steps if step < 0)
    if fell > FALLS * (counts[-1] - counts[0]):
        return False
    return counts[0] < counts[len(counts) // 2] < counts[-1]


def grown(memory: Memory) -> list[LiveArrays]:
    """Arrays of which there are ever more, those that take most first."""
    rising = [each for each in memory.arrays if rises(each.counts)]
    return sorted(rising, key=taken, reverse=True)


def taken(arrays: LiveArrays) -> int:
    """Bytes by which these grew."""
    return (arrays.counts[-1] - arrays.counts[0]) * arrays.bytes_each


def growth(memory: Memory, leaking: list[LiveArrays]) -> float:
    """Bytes a second that arrays gain."""
    samples = memory.samples
    if len(samples) < FEWEST_SAMPLES or samples[-1].at_s <= samples[0].at_s:
        return 0.0
    lost = sum(map(taken, leaking))
    totals = tuple(sample.array_bytes for sample in samples)
    if not memory.arrays and rises(totals):
        lost = totals[-1] - totals[0]
    return lost / (samples[-1].at_s - samples[0].at_s)


def step_s(observation: Observation) -> float | None:
    """Seconds of a step, where there are steps."""
    steps = observation.steps
    return steps.time_ms / 1e3 if steps is not None and steps.time_ms > 0 else None


def least(observation: Observation) -> float:
    """The smallest growth to speak of, bytes a second."""
    return LEAST_GROWTH / (100 * (step_s(observation) or 0.01))


def room(memory: Memory) -> int:
    """Bytes that arrays may still take: of the devices, or of the host."""
    limited = [each for each in memory.devices if each.limit_bytes is not None]
    if limited:
        return sum(max(0, (each.limit_bytes or 0) - each.in_use_bytes) for each in limited)
    return max(0, memory.available_bytes)


def ends(observation: Observation, memory: Memory, rate: float) -> bool:
    """Whether memory ends before the run does."""
    seconds, workload, steps = room(memory) / rate, observation.target.workload, observation.steps
    each_s = step_s(observation)
    if workload is None or steps is None or each_s is None:
        return seconds < SOON_S
    begun = steps.began_s + steps.window_s
    return seconds < workload.training.steps * each_s - begun


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
    end = f"{left_s / 60:.0f} minutes" if left_s >= 120 else f"{left_s:.0f} s"
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
    if limit > 0 and max(memory.rss_bytes, limit - memory.available_bytes) >= FULL * limit:
        left = f"{memory.available_bytes / GIB:.2f} of {limit / GIB:.1f} GiB are left on the host"
        how = "fewer data workers, less prefetch, a smaller batch; or ask for more memory"
        found.append((left, Fix(summary="take less memory on the host", how=how)))
    for index, device in enumerate(memory.devices):
        peak = max(device.peak_bytes, device.in_use_bytes)
        if device.limit_bytes and peak >= FULL * device.limit_bytes:
            share = f"device {index}'s memory was {peak / device.limit_bytes:.0%} full"
            how = "a smaller batch, jax.checkpoint around a block, donate_argnums for the state"
            found.append((share, Fix(summary="take less memory on the device", how=how)))
            break
    return found


def swapped(memory: Memory) -> list[Reason]:
    """What the kernel moved to disk."""
    if memory.swapped_bytes <= SWAPPED * max(memory.rss_bytes, 1):
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
        if gpu.memory_used_bytes >= FULL * gpu.memory_bytes:
            names = ", ".join(f"{each.name} ({each.pid})" for each in gpu.processes[:3])
            how = "export XLA_PYTHON_CLIENT_MEM_FRACTION=.4  # a share for each process"
            text = f"GPU {gpu.index} is full, and {names} share it"
            return [(text, Fix(summary="leave the other processes their memory", how=how))]
    return []


def facts(observation: Observation, memory: Memory) -> list[Evidence]:
    """Resident, peak, available, swapped; arrays; devices."""
    limit = observation.host.memory_limit_bytes or observation.host.memory_bytes
    found = [
        Evidence(name=name, value=round(size / MIB), unit="MiB", source=source)
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
        found.append(Evidence(name="growth of arrays", value=grew, unit=window, source=live))
    found += [
        Evidence(
            name=f"{each.dtype}[{','.join(map(str, each.shape))}]",
            value=each.counts[-1],
            unit=f"arrays, {each.counts[0]} at first",
            source="jax.live_arrays",
        )
        for each in (grown(memory) or memory.arrays)[:3]
        if each.counts
    ]
    return found + [
        Evidence(
            name=f"device {index} peak",
            value=round(device.peak_bytes / MIB),
            unit=f"of {(device.limit_bytes or 0) / MIB:.0f} MiB",
            source="memory_stats",
        )
        for index, device in enumerate(memory.devices)
    ]
