"""Whether what is gained on a replayed step holds for the program."""

import math

from perfdoctor.schema.calls import Alone, StepCalls
from perfdoctor.schema.steps import Steps
from perfdoctor.trials.statistics import FAITHFUL

NEAR = 1.0
"""An emulated step that takes so much more or less than the observed one gives no estimate either.
Up to twice is luck: how memory lies in a process decides whether each step touches new pages, which
made the same program of 16 MB take 1.6 or 3.1 ms. The interval of a gain counts the error."""


def observed_ms(calls: StepCalls, steps: Steps | None) -> float:
    """What a step takes in the run: as it was timed first; or as it was traced after that, where it
    surely took less then. A trace makes no step faster, so the machine was disturbed before.

    What is done now and then need not be in the window of a trace, and is told by the calls; so is
    what compiles, of which the window counts no steps.
    """
    if steps is None or steps.threads > 1 or calls.threads > 1 or calls.compilations > 0:
        return calls.time_ms
    ours = sum(call.function == steps.function for call in calls.calls)
    if ours == 0 or round(steps.calls.get(steps.function, 1.0)) != ours:
        return calls.time_ms
    rare_ms = 0.0 if calls.runs_ahead else calls.rare_ms
    timed_ms, most_ms = calls.time_ms - rare_ms, steps.time_ms + 2 * steps.standard_error_ms
    return rare_ms + (steps.time_ms if most_ms < timed_ms else timed_ms)


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
