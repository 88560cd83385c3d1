"""Arrays that are read element by element, each with a dispatch and a wait."""

from msgspec import structs

from perfdoctor import (
    Eager,
    Evidence,
    Fix,
    Gain,
    Observation,
    Outcome,
    Place,
    Steps,
    issue,
    needed,
    not_measured,
    place,
    spared,
)
from perfdoctor_checks._operations import as_a_whole, lost_between_ms

AT_ONCE = Fix(
    summary="read all results of a step at once",
    how="host = jax.device_get(results)  # once a step, before what loops over their elements",
)
"""The fix for what is read element by element, each with a dispatch and a wait."""


def by_elements(observation: Observation, eager: Eager) -> Outcome:
    """Of a program whose steps were not told, for they consist of single operations: whether most
    of its time passes with elements of arrays, each taken out by a dispatch and waited for. Half of
    that is lost at least.
    """
    if not eager.reads_one_by_one:
        return not_measured(observation.not_measured.get("steps", "no steps were seen"))
    reads = needed(eager.reads)
    evidence = Evidence(f"elements in {reads.function}", round(reads.share, 3), "share", "stacks")
    gain = spared(1.0, reads.share, reads.share / 2, reads.share)
    return issue(seen_reading(reads), [evidence], [AT_ONCE], gain)


def seen_reading(reads: Place) -> str:
    """Where elements are read, and what that takes."""
    return (
        f"{reads.function}() ({place(reads.file, reads.line)}) reads an array of jax element by "
        f"element, each with a dispatch and a wait: {reads.share:.0%} of the main thread's time"
    )


def read_at_once(observation: Observation) -> Fix:
    """What it gains is at most what the step gains beside nothing but loading, where it can be
    replayed: what loops over the elements goes on to do so.
    """
    change = as_a_whole(observation)
    return structs.replace(AT_ONCE, change=change) if change.is_bound else AT_ONCE


def at_once(steps: Steps) -> Gain:
    """The gain if all were read at once, without the dispatches for each of them: half of that at
    least, and at most all that the device idles.
    """
    lost_ms = max(0.0, steps.exposed_wait_ms) + lost_between_ms(steps)
    return spared(steps.time_ms, lost_ms, lost_ms / 2, max(lost_ms, steps.idle_ms))
