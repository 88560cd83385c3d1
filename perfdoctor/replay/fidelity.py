"""Whether what is gained on a replayed step holds for the program."""

import math

from perfdoctor.schema.calls import Alone
from perfdoctor.trials.statistics import FAITHFUL

NEAR = 0.5
"""An emulated step that takes so much more or less than the observed one gives no estimate either.
Machines that others use too change by a third from one minute to the next."""


def emulation_error(alone: Alone) -> float | None:
    """The logarithm of the emulated step time over the observed one; None if it can't be told."""
    if alone.emulated_ms is None:
        return None
    return math.log(alone.emulated_ms / alone.observed_ms)


def why_unfaithful(alone: Alone) -> str | None:
    """Why what is gained on the replayed step does not hold for the program; None if it does."""
    error = emulation_error(alone)
    if error is None or abs(error) <= math.log(1 + FAITHFUL):
        return None
    return (
        f"its step takes {alone.observed_ms:.3g} ms, replayed {alone.emulated_ms:.3g} ms: "
        "something that the replay lacks matters"
    )
