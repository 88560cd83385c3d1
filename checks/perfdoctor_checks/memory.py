"""Memory runs short, or is saved where it does not.

What it finds
-------------
jax.Arrays that pile up from step to step, memory of the host or a device that is nearly used up,
parts of the training that were moved to swap, and a pool on a GPU that leaves others nothing. Where
memory is left: `jax.checkpoint`, which computes results again in place of keeping them.

Why it costs
------------
A run whose memory grows ends before it is done. Near the limit the kernel drops caches and swaps,
which makes a step wait for the disk; XLA recomputes and splits what it could have kept.

How it is measured
------------------
Resident memory, and live arrays that are computed, by shape and type, several times over the traced
window. Arrays of a shape that hardly ever become fewer are a leak; resident memory that grows is no
proof, since caches fill, and the profiler keeps its events there. The rate is projected to what is
left. What `jax.checkpoint` costs is measured on the step traced without it, in what memory is left.

How to fix
----------
Drop what is no longer needed: `losses.append(float(loss))` every 100 steps in place of the array;
no lists of old parameters or batches. Smaller batches, or `jax.checkpoint`, lower the peak.
Where memory is left, no `jax.checkpoint`.

References
----------
Deeplearning4j, "Performance debugging", memory: heap and off-heap. JAX, "Device memory profiling",
"GPU memory allocation".
"""

from perfdoctor import Evidence, Observation, Outcome, issue, needed, ok
from perfdoctor_checks._footprint import facts, leak, near_limits, starves, swapped
from perfdoctor_checks._growth import ends, grown, growth, least
from perfdoctor_checks._limits import GIB
from perfdoctor_checks._reasons import fixes_of, hint_of, joined
from perfdoctor_checks._recomputed import recomputed

ID = "memory"
NEEDS = ("memory",)


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
            return issue(joined(reasons), evidence, fixes_of(reasons))
    reasons = reasons or recomputed(observation, memory)
    if reasons:
        return hint_of(reasons, evidence)
    left = f"{memory.available_bytes / GIB:.1f} GiB are left"
    return ok(f"takes {memory.rss_bytes / GIB:.1f} GiB, {left}", *evidence)


def here(observation: Observation) -> list[Evidence]:
    """The memory of this machine, and what of it we may use."""
    host = observation.host
    return [
        Evidence("memory", round(host.memory_bytes / GIB, 1), "GiB", "host"),
        Evidence(
            "limit",
            round((host.memory_limit_bytes or host.memory_bytes) / GIB, 1),
            "GiB",
            "cgroup" if host.memory_limit_bytes else "host",
        ),
    ]
