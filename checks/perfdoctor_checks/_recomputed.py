"""Results that are computed again for the gradient, to save memory of which enough is left."""

from perfdoctor import Change, Fix, Memory, Observation, place
from perfdoctor_checks._growth import room
from perfdoctor_checks._limits import GIB, LEAST_SHARE
from perfdoctor_checks._reasons import Reason


def recomputed(observation: Observation, memory: Memory) -> list[Reason]:
    """What `jax.checkpoint` has the step compute again, though more memory is left than it takes.
    What that costs is measured without it, and so is that it fits: nothing is said without.
    """
    program, left_bytes = observation.program, room(memory)
    if program is None or program.recomputed_share < LEAST_SHARE or left_bytes < taken(memory):
        return []
    where = "".join(
        f" (most of it in {place(each.file, each.line)})" for each in program.recomputed_places[:1]
    )
    text = (
        f"jax.checkpoint has the step compute {program.recomputed_share:.0%} of its elements "
        f"again{where}, while {left_bytes / GIB:.1f} GiB of memory are left"
    )
    return [(text, KEEP)]


KEEP = Fix(
    summary="keep results for the gradient in place of computing them again",
    how="no jax.checkpoint; or policy=jax.checkpoint_policies.dots_saveable, which keeps products",
    change=Change(step={"program": "kept"}),
)
"""The fix: it gives the same results, with more memory."""


def taken(memory: Memory) -> int:
    """Bytes that the training takes at most: of devices whose limit is known, or of the host."""
    limited = [each for each in memory.devices if each.limit_bytes is not None]
    if limited:
        return sum(max(each.in_use_bytes, each.peak_bytes) for each in limited)
    return memory.peak_rss_bytes
