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
with an empty cache folder of their own and with the one that the launch before has filled. Launches
of a script are not tried by default, and to load what was kept takes time as well: there half of it
must be enough. Where a run's length is not known, large compilations are named, no more. What is
compiled again and again, and what is compiled operation by operation, is no matter of a cache: see
recompilation, missing-jit and debug-flags.

How to fix
----------
`export JAX_COMPILATION_CACHE_DIR=~/.cache/jax JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0`: JAX
itself keeps only what took a second or more.

References
----------
JAX, "Persistent compilation cache".
"""

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
    not_applicable,
    ok,
    spared,
)
from perfdoctor_checks._launches import (
    THRESHOLD,
    facts,
    kept_from_s,
    length_s,
    matters,
    saveable,
    xla_s,
)
from perfdoctor_checks._limits import CACHE_THRESHOLD_S, LAUNCH_S, TRIED_S

ID = "compile-cache"
NEEDS = ("compiles",)
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
"""The same, as a trial makes it: in a folder that is empty before."""
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
    source = "steps and their time" if observation.ended_s is None else "its start and its end"
    length = Evidence("the run", round(run_s, 1), "s", source)
    change = APPLIED if run_s <= TRIED_S else Change(speeds_up="launch")
    fix = Fix(summary=CACHE.summary, how=CACHE.how, change=change)
    gain = spared(run_s, seconds, seconds / 2, xla_s(saveable(observation, None)))
    summary = (
        f"XLA compiles for {seconds:.1f} s in each launch, {share:.0%} of a run of {run_s:.0f} s"
    )
    is_sure = observation.target.workload is not None or matters(seconds / 2, run_s)
    tell = issue if is_sure else hint
    return tell(summary, [*evidence, length], [fix], gain)


def here(observation: Observation) -> list[Evidence]:
    """The cache's settings in the environment."""
    names = ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS")
    return [Evidence(name, observation.environment.get(name), "", "environment") for name in names]


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
