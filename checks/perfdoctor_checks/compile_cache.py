"""Each launch compiles the same programs again.

What it finds
-------------
Launches of which a substantial part, seconds at least, is compilation that JAX's persistent cache
would save from the second launch on, and caches that leave out what takes less than their threshold
to compile. It makes no step faster, and is ranked after all that does.

Why it costs
------------
XLA needs from half a second to many minutes for a training step, each time that the program starts.
Over a long run this is nothing; over a short one, started again and again while a model is
developed, it is most of the waiting.

How it is measured
------------------
jax.monitoring tells what XLA took for each program. For a run that ended by itself, or a workload
that says how many steps it makes, this is compared with all of it; a trial measures whole launches
with an empty cache folder of their own and with the one that the launch before has filled. Where a
run's length is not known, large compilations are named, no more. What is compiled again and again,
and what is compiled operation by operation, is no matter of a cache: see recompilation, missing-jit
and debug-flags.

How to fix
----------
`export JAX_COMPILATION_CACHE_DIR=~/.cache/jax JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0`: JAX
itself keeps only what took a second or more.

References
----------
JAX, "Persistent compilation cache".
"""

from collections import defaultdict
from itertools import chain

from perfdoctor import (
    Change,
    Compile,
    CompileCache,
    Evidence,
    Fix,
    Observation,
    Outcome,
    hint,
    issue,
    needed,
    not_applicable,
    ok,
    spared,
)
from perfdoctor_checks._limits import CACHE_THRESHOLD_S, FEW, LAUNCH_S, LAUNCH_SHARE, TRIED_S

ID = "compile-cache"
NEEDS = ("compiles",)
THRESHOLD = "jax_persistent_cache_min_compile_time_secs"
"""The setting of the shortest compilation that jax's persistent cache keeps."""
CACHE = Fix(
    summary="keep compiled programs from one launch to the next",
    how="export JAX_COMPILATION_CACHE_DIR=~/.cache/jax "
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0",
)
"""The fix where there is no cache."""
APPLIED = Change(
    env={
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    },
    folders=("JAX_COMPILATION_CACHE_DIR",),
    speeds_up="launch",
)
ALL_KEPT = Fix(
    summary="keep the quickly compiled programs too",
    how="export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0",
)


def check(observation: Observation) -> Outcome:
    """Compares what a cache would save with the run's length, where that is known."""
    compiles = saveable(observation)
    if not compiles:
        return not_applicable("nothing was compiled that a later launch would compile again")
    cache = observation.compile_cache
    seconds = xla_s(compiles)
    evidence = facts(compiles, cache)
    if cache is not None and cache.folder is not None:
        return with_cache(observation, cache, compiles, evidence)
    run_s = length_s(observation)
    if run_s is None:  # twice what is worth a finding is worth a line
        text = f"XLA compiles for {seconds:.1f} s in each launch"
        if seconds < 2 * LAUNCH_S:
            return ok(text, *evidence)
        return hint(f"{text}, which a cache would save", evidence, [CACHE])
    share = min(1.0, seconds / run_s)
    if not matters(seconds, run_s):
        return ok(f"XLA compiles for {seconds:.1f} s, {share:.1%} of the run", *evidence)
    length = Evidence("the run", round(run_s, 1), "s", "its start and its end, or its steps")
    change = APPLIED if run_s <= TRIED_S else Change(speeds_up="launch")
    fix = Fix(summary=CACHE.summary, how=CACHE.how, change=change)
    gain = spared(run_s, seconds, seconds / 2, xla_s(saveable(observation, None)))
    summary = (
        f"XLA compiles for {seconds:.1f} s in each launch, {share:.0%} of a run of {run_s:.0f} s"
    )
    return issue(summary, [*evidence, length], [fix], gain)


def here(observation: Observation) -> list[Evidence]:
    """The cache's settings in the environment."""
    names = ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS")
    return [Evidence(name, observation.environment.get(name), "", "environment") for name in names]


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
        return None  # its steps take longer than the median
    started_s = max(each.at_s for each in saveable(observation))
    return started_s + workload.training.steps * steps.time_ms / 1e3


def trains(observation: Observation) -> bool:
    """Whether a script that was over before its steps could be seen compiled like one that trains.
    A workload says itself how many steps it makes, and is to make more.
    """
    if observation.target.workload is not None:
        return False
    return xla_s(saveable(observation)) >= CACHE_THRESHOLD_S


def with_cache(
    observation: Observation, cache: CompileCache, compiles: list[Compile], evidence: list[Evidence]
) -> Outcome:
    """Whether the cache is allowed to keep what takes time."""
    threshold_s = kept_from_s(observation)
    short = [each for each in compiles if each.backend_s < threshold_s]
    run_s = length_s(observation)
    short_s = xla_s(short)
    is_much = short_s >= 2 * LAUNCH_S if run_s is None else matters(short_s, run_s)
    if cache.hits or not is_much:
        return ok(f"the cache is in use: {cache.hits} hits, {cache.misses} written", *evidence)
    summary = (
        f"the cache keeps nothing that compiles in less than {threshold_s:g} s: "
        f"{len(short)} programs, {short_s:.1f} s in each launch"
    )
    name = f"{THRESHOLD} (jax's default: {CACHE_THRESHOLD_S:g})"
    told = Evidence("kept from", threshold_s, "s", name)
    return hint(summary, [*evidence, told], [ALL_KEPT])


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
