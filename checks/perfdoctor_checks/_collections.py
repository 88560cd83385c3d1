"""Collections of Python's garbage: how long, from where, and what leaves them out."""

import math

from msgspec import structs

from perfdoctor import Change, Evidence, Fix, Garbage, Observation, Steps, needed, shorten
from perfdoctor_checks._limits import MOSTLY

QUANTILE = 1.64
"""The one-sided 95 % quantile of the normal distribution."""
OLDEST = 2
"""The generation that only full collections visit."""
LEFT_OVER = Fix(
    summary="make fewer objects in the training loop, or collect more rarely",
    how="gc.set_threshold(100_000, 50, 100)  # once, before the training loop",
)
"""The fix for collections that nobody asks for."""


def surely(garbage: Garbage) -> float:
    """The share of the time in collections that is sure to be saved: a full one that was seen once
    may come once in minutes (Poisson).
    """
    return max(0.0, 1 - QUANTILE / math.sqrt(garbage.collections[0].count))


def summary(garbage: Garbage, steps: Steps) -> str:
    """How often, how long, from where."""
    worst = garbage.collections[0]
    kind = "full collection" if worst.generation == OLDEST else "collection"
    by = "from gc.collect() at" if worst.explicit else "begun in"
    every = garbage.window_s * 1e3 / (steps.slowed * steps.time_ms) / worst.count
    each_ms = worst.total_ms / worst.count
    text = f"a {kind} every {every:.1f} steps, {each_ms:.0f} ms each, {by} {shorten(worst.place)}"
    if not garbage.live_objects:  # a run that was ended before they were counted
        return text
    objects = f"{garbage.live_objects:,}".replace(",", "\N{NO-BREAK SPACE}")
    return f"{text}; {objects} live objects"


def facts(garbage: Garbage, steps: Steps) -> list[Evidence]:
    """What the finding rests on."""
    heap = [
        Evidence("live objects", garbage.live_objects, "objects", "gc.get_objects"),
        Evidence("frozen objects", garbage.frozen_objects, "objects", "gc.get_freeze_count"),
    ]
    return [
        Evidence("GC, device idle", steps.exposed_gc_ms, "ms/step", "gc.callbacks"),
        Evidence("GC, in all", steps.gc_ms, "ms/step", "gc.callbacks"),
        *(heap if garbage.live_objects else ()),
        *(
            Evidence(
                f"generation {each.generation} collections",
                each.count,
                f"in {garbage.window_s:.1f} s, {each.longest_ms:.1f} ms at most",
                shorten(each.place),
            )
            for each in garbage.collections[:3]
        ),
    ]


def fixes(observation: Observation) -> list[Fix]:
    """Freezing is tried first: it changes nothing that the program does."""
    workload = observation.target.workload
    if workload is None:
        garbage = needed(observation.garbage)
        return [fix_of_script(garbage)] if garbage.collections else []
    freeze = Fix(
        summary="take what lives after set-up out of later collections",
        how="[process] gc_freeze = true",
        change=Change(workload={"process.gc_freeze": True}),
    )
    rarely = Fix(
        summary="do not collect in the loop",
        how="[process] gc_collect_every = 0",
        change=Change(workload={"process.gc_collect_every": 0}),
    )
    process = workload.process
    found = [] if process.gc_freeze else [freeze]
    if process.gc_collect_every:
        found.append(rarely)
    return found or [LEFT_OVER]


def fix_of_script(garbage: Garbage) -> Fix:
    """What the script asks for is left out. Of what Python does by itself, full collections visit
    little after `gc.freeze()`, and those of young objects as much as before; where these take most,
    what is gained by collecting more rarely is a bound.
    """
    worst = garbage.collections[0]
    if worst.explicit:
        left_ms = sum(each.total_ms for each in garbage.collections if not each.explicit)
        return Fix(
            summary="leave out gc.collect(): arrays that no cycle holds are freed without it",
            how=f"remove gc.collect() at {shorten(worst.place)}",
            change=Change(gc_skip_collect=True, step={"collecting": share(garbage, left_ms)}),
        )
    left_ms = sum(each.total_ms for each in garbage.collections if each.generation < OLDEST)
    if share(garbage, left_ms) >= MOSTLY:  # freezing spares none of these
        bound = Change(step={"collecting": 0}, is_bound=True)
        return structs.replace(LEFT_OVER, change=bound)
    return Fix(
        summary="take what lives after set-up out of later collections",
        how="import gc; gc.collect(); gc.freeze()  # once, before the training loop",
        change=Change(gc_freeze=True, step={"collecting": share(garbage, left_ms)}),
    )


def share(garbage: Garbage, part_ms: float) -> float:
    """The part of the time in all collections; 0 if they took none."""
    whole_ms = sum(each.total_ms for each in garbage.collections)
    return round(part_ms / whole_ms, 3) if whole_ms > 0 else 0.0
