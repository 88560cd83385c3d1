"""How long a replayed step is timed."""

from perfdoctor.schema.capture import Replayed
from perfdoctor.trials.pair import OWN_SLICE_STEPS

SLICE_S, LONGEST_SLICE_S = 0.2, 3.0
"""Seconds of a slice of a replay. Both variants run in one process, or in two of which only one has
something to do."""
FIRST_ROUNDS, AGAIN_ROUNDS = 5, 15
"""Rounds by which it is told what the step takes alone, and emulated; where that is far from what
was observed, it is timed for more of them."""
PAIR_S = 5.0
"""What it takes to compare a step with a changed one: compiling it, and slices. Measured on 2 cores
with scripts of tests/clinic: 2 to 4 s."""


def a_step_ms(ran: Replayed) -> float:
    """What a step took."""
    return ran.wall_s / ran.steps * 1e3


def slice_s(ran: Replayed) -> float:
    """How long slices are to be, by a first one, that each holds some steps."""
    return min(LONGEST_SLICE_S, max(SLICE_S, OWN_SLICE_STEPS * ran.wall_s / ran.steps))
