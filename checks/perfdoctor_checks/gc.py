"""Python's garbage collector interrupts the training.

What it finds
-------------
Collections that stop the main thread while the device is idle: full ones over a large heap, most
often from a `gc.collect()` in the training loop that was meant to free memory.

Why it costs
------------
A full collection visits every live container object: about 250 ms for a million of them. Arrays on
a device are freed by reference counting at once; the collector is not needed for them.

How it is measured
------------------
`gc.callbacks` times each collection and names the line in which it began; the pauses count where no
device computes. What those cost behind which it does is tried: on the step alone, without them, but
for those that stay: of young objects after `gc.freeze()`, Python's own without `gc.collect()`.
Live objects alone are no finding: Python collects fully only when new survivors exceed a quarter of
the old ones, so a large, steady heap costs nothing.

How to fix
----------
Remove `gc.collect()` from the loop, or call `gc.freeze()` once after set-up, which takes all that
lives then out of later collections.

References
----------
Deeplearning4j, "Performance debugging", step 3 (below 100 000 objects it rarely matters, above
500 000 it does if collections are frequent). CPython, Modules/gcmodule.c; PEP 556.
"""

from perfdoctor import (
    Evidence,
    Fix,
    Garbage,
    Iterations,
    Observation,
    Outcome,
    hint,
    issue,
    needed,
    of_host_work,
    ok,
    shorten,
    spared,
)
from perfdoctor_checks import _listened
from perfdoctor_checks._collections import facts, fixes, summary, surely
from perfdoctor_checks._limits import LEAST_SHARE

ID = "gc"
NEEDS = ("garbage", "steps|iterations")


def check(observation: Observation) -> Outcome:
    """Reads the pauses that the device did not hide."""
    garbage = needed(observation.garbage)
    if observation.steps is None:
        return by_listening(garbage, needed(observation.iterations), fixes(observation))
    steps = needed(observation.steps)
    evidence = facts(garbage, steps)
    exposed_ms = steps.exposed_gc_ms
    if steps.gc_ms < LEAST_SHARE * steps.time_ms:
        return ok(f"collections take {steps.gc_ms:.2f} ms a step", *evidence)
    if exposed_ms < LEAST_SHARE * steps.time_ms:
        text = f"{summary(garbage, steps)}; the device computes meanwhile"
        return hint(text, evidence, fixes(observation))
    gain = spared(steps.time_ms, exposed_ms, exposed_ms * surely(garbage), steps.gc_ms)
    gain = of_host_work(observation, gain)
    return issue(summary(garbage, steps), evidence, fixes(observation), gain)


def by_listening(garbage: Garbage, loop: Iterations, fixes: list[Fix]) -> Outcome:
    """Of a loop in which nothing was traced."""
    source = "gc.callbacks"
    evidence = [Evidence("GC, in all", loop.gc_ms, "ms/iteration", source)]
    text = f"collections take {loop.gc_ms:.2f} ms an iteration"
    if _listened.is_little(loop, loop.gc_ms) or not garbage.collections:
        return ok(text, *evidence)
    worst = garbage.collections[0]
    by = "from gc.collect() at" if worst.explicit else "begun in"
    text = f"{text}, most of it {by} {shorten(worst.place)}"
    return issue(text, evidence, fixes, _listened.without_collections(loop, surely(garbage)))
