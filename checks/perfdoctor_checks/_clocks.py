"""Quotas and clocks: what holds the CPU or a GPU below its speed."""

from perfdoctor import (
    Evidence,
    Fix,
    Gain,
    Gpu,
    Host,
    Load,
    Observation,
    Outcome,
    hint,
    issue,
    needed,
    spared,
)
from perfdoctor_checks._limits import CLOCK, MOSTLY

HEAT = ("hw_slowdown", "hw_thermal_slowdown", "sw_thermal_slowdown", "hw_power_brake_slowdown")
POWER = ("sw_power_cap",)  # NVML's names for what holds a clock down


def cores(host: Host) -> int:
    """The CPUs on which a quota may hold threads back."""
    return max(1, host.affinity_cores)


def held_cores(load: Load) -> float:
    """Core time that the quota held back over wall time."""
    return held_ms(load) / 1e3


def held_ms(load: Load) -> float:
    """Milliseconds of core time that the quota held back, for each second."""
    return max(0.0, load.throttled_ms or 0.0) / load.seconds if load.seconds > 0 else 0.0


def quota_summary(load: Load, host: Host) -> str:
    """Whose limit, and how much it took."""
    quota = "" if host.quota_cores is None else f" of {host.quota_cores:g} cores"
    return (
        f"the CPU quota{quota} holds the training back: {held_ms(load):.0f} ms of core time a "
        f"second, while it used {load.own_cores:.1f} cores"
    )


def more_cores(load: Load, host: Host) -> Gain:
    """The gain if what was held back had run: its share of all CPUs at least, one CPU at most."""
    held = held_cores(load)
    wanted = min(float(cores(host)), load.own_cores + held)
    likely = min(held, max(held / cores(host), 1 - load.own_cores / wanted)) if wanted else held
    return spared(1.0, likely, held / cores(host), held)


def quota_fix(host: Host) -> Fix:
    """The fix for the user: nothing that the program could do by itself."""
    last = max(1, round(host.quota_cores or 1)) - 1
    raised = f"docker run --cpus={cores(host)} …, or resources.limits.cpu in Kubernetes"
    summary = "raise the CPU quota, or start no more threads than it allows"
    return Fix(summary=summary, how=f"{raised}; else: taskset -c 0-{last} python …")


def gpus(observation: Observation) -> list[Gpu]:
    """Those that jax may use and that are held down, with a known clock."""
    backend = observation.backend
    if backend is None or backend.platform not in ("gpu", "cuda"):
        return []
    visible = observation.environment.get("CUDA_VISIBLE_DEVICES", "").split(",")
    chosen = {int(each) for each in visible if each.strip().isdigit()}
    return [
        each
        for each in observation.gpus
        if (not chosen or each.index in chosen)
        and set(each.throttle_reasons) & {*HEAT, *POWER}
        and each.clock_mhz
        and each.highest_clock_mhz
    ]


def clock_share(gpu: Gpu) -> float:
    """The clock over the highest."""
    return (gpu.clock_mhz or 0) / (gpu.highest_clock_mhz or 1)


def slow_gpu(observation: Observation, gpu: Gpu, evidence: list[Evidence]) -> Outcome:
    """Heat is a fault of the machine; a power limit may be meant."""
    reasons = ", ".join(each for each in gpu.throttle_reasons if each in (*HEAT, *POWER))
    summary = f"{gpu.name} runs at {gpu.clock_mhz} of {gpu.highest_clock_mhz} MHz: {reasons}"
    if not set(gpu.throttle_reasons) & set(HEAT):
        limit = "" if gpu.power_limit_w is None else f"; it is {gpu.power_limit_w:.0f} W"
        more = Fix(
            summary=f"raise the power limit, if it was lowered{limit}",
            how=f"nvidia-smi -i {gpu.index} -q -d POWER  # then: sudo nvidia-smi -pl WATTS",
        )
        return hint(summary, evidence, [more])
    look = f"nvidia-smi -i {gpu.index} -q -d PERFORMANCE,TEMPERATURE"
    cooler = Fix(summary="cool the GPU: fans, air flow, dust; or its power supply", how=look)
    steps, lost = needed(observation.steps), 1 - clock_share(gpu)
    lost_ms = lost * steps.device_busy_ms
    gain = spared(steps.time_ms, lost_ms, lost_ms / 2, lost * steps.time_ms)
    return issue(summary, evidence, [cooler], gain)


def limits_of(host: Host) -> list[Evidence]:
    """The limits of the CPU."""
    return [
        Evidence("quota", host.quota_cores, "cores", "cgroup cpu.max"),
        Evidence("governor", host.governor, "", "scaling_governor"),
        Evidence("highest clock", host.highest_mhz, "MHz", "cpuinfo_max_freq"),
    ]


def slow_cpu(load: Load, host: Host) -> bool:
    """Whether the fastest core is well below what it could be, though there is work for it."""
    if not load.clock_mhz or not host.highest_mhz or load.own_cores < MOSTLY:
        return False
    return load.clock_mhz < CLOCK * host.highest_mhz


def cpu_facts(load: Load, host: Host) -> list[Evidence]:
    """What this machine tells of its CPU."""
    found = [
        Evidence("held back by the quota", load.throttled_ms, "ms of core time", "cgroup cpu.stat"),
        Evidence("window", load.seconds, "s", "wall time"),
        Evidence("training", load.own_cores, "cores", "CPU time of its processes"),
        Evidence("clock of the fastest core", load.clock_mhz, "MHz", "scaling_cur_freq"),
        *limits_of(host),
    ]
    return [each for each in found if each.value is not None]


def gpu_facts(observation: Observation) -> list[Evidence]:
    """Clock, temperature and reasons of each GPU that is held down."""
    return [
        Evidence(
            f"GPU {gpu.index}",
            gpu.clock_mhz,
            f"of {gpu.highest_clock_mhz} MHz, {gpu.temperature_c} °C, {gpu.power_w} W",
            f"NVML: {', '.join(gpu.throttle_reasons)}",
        )
        for gpu in gpus(observation)
    ]
