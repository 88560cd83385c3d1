"""Arrays that become ever more, and when memory ends by it."""

from itertools import pairwise

from perfdoctor import LiveArrays, Memory, Observation
from perfdoctor_checks._limits import FALLS, FEW, MIB, SEVERAL, SOON_S


def rises(counts: tuple[int, ...]) -> bool:
    """Whether a number hardly ever falls, rises a few times at least, and still does so in the
    second half of the window.
    """
    steps = [later - earlier for earlier, later in pairwise(counts)]
    if len(counts) < SEVERAL or sum(step > 0 for step in steps) < FEW:
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
    if len(samples) < SEVERAL or samples[-1].at_s <= samples[0].at_s:
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
    return MIB / (100 * (step_s(observation) or 0.01))


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
