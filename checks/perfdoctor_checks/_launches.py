"""What a launch compiles, and how long the run is that it begins."""

from collections import defaultdict
from itertools import chain

from perfdoctor import Compile, CompileCache, Evidence, Observation, needed
from perfdoctor_checks._limits import CACHE_THRESHOLD_S, FEW, LAUNCH_S, LAUNCH_SHARE

THRESHOLD = "jax_persistent_cache_min_compile_time_secs"
"""The setting of the shortest compilation that jax's persistent cache keeps."""


def saveable(observation: Observation, of_a_name: int | None = FEW) -> list[Compile]:
    """What a cache saves for sure: the step's first compilation, and a few of each other name."""
    step = observation.steps.function if observation.steps else None
    by_name = defaultdict(list)
    for each in needed(observation.compiles):
        by_name[each.function].append(each)
    kept = (all_of[: 1 if name == step else of_a_name] for name, all_of in by_name.items())
    return [each for each in chain.from_iterable(kept) if each.backend_s > 0]


def length_s(observation: Observation) -> float | None:
    """Seconds of the whole run, if it ended by itself or says how many steps it makes."""
    workload, steps = observation.target.workload, observation.steps
    if observation.ended_s is not None and (steps is not None or trains(observation)):
        return observation.ended_s
    if steps is None or workload is None or workload.inference.clients:
        return None
    if sum(each.function == steps.function for each in needed(observation.compiles)) > FEW:
        return None  # those of its steps that compile are not in the median
    started_s = max(each.at_s for each in saveable(observation))
    return started_s + workload.training.steps * steps.time_ms / 1e3


def trains(observation: Observation) -> bool:
    """Whether a script that was over before its steps could be seen compiled like one that trains.
    A workload says itself how many steps it makes, and is to make more.
    """
    if observation.target.workload is not None:
        return False
    return xla_s(saveable(observation)) >= CACHE_THRESHOLD_S


def xla_s(compiles: list[Compile]) -> float:
    """Seconds that XLA took for them."""
    return sum(each.backend_s for each in compiles)


def matters(compiling_s: float, run_s: float) -> bool:
    """Whether a cache that saves this compiling makes a launch much shorter."""
    return compiling_s >= max(LAUNCH_S, LAUNCH_SHARE * run_s)


def kept_from_s(observation: Observation) -> float:
    """Programs that compile more quickly are not written to the cache."""
    for each in observation.settings or ():
        if each.name == THRESHOLD and isinstance(each.value, int | float):
            return float(each.value)
    return CACHE_THRESHOLD_S


def facts(compiles: list[Compile], cache: CompileCache | None) -> list[Evidence]:
    """What XLA took, most for which program, and the cache."""
    source = "jax.monitoring: backend_compile_duration"
    longest = max(compiles, key=lambda each: each.backend_s)
    found = [
        Evidence("XLA", round(xla_s(compiles), 2), "s", source),
        Evidence("programs", len(compiles), "", source),
        Evidence(longest.function, round(longest.backend_s, 2), "s", source),
    ]
    if cache is None:
        return found
    folder = "jax_compilation_cache_dir"
    return [
        *found,
        Evidence("cache", cache.folder, "", folder),
        Evidence("hits", cache.hits, "", "jax.monitoring: cache_hits"),
        Evidence("written", cache.misses, "", "jax.monitoring: cache_misses"),
    ]
