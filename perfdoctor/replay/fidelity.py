"""Whether what is gained on a replayed step holds for the program."""

import math
import time
from typing import Literal, Protocol

from perfdoctor.replay.slices import AGAIN_ROUNDS, FIRST_ROUNDS
from perfdoctor.schema.calls import Alone, StepCalls
from perfdoctor.schema.steps import Steps
from perfdoctor.trials.statistics import FAITHFUL

NEAR = 1.0
"""An emulated step that takes so much more or less than the observed one gives no estimate either.
Up to twice is luck: how memory lies in a process decides whether each step touches new pages, which
made the same program of 16 MB take 1.6 or 3.1 ms. The interval of a gain counts the error."""
LATER_S, MOST_LATER = 2.0, 2
"""Seconds until a step that is too slow is emulated once more, and how often that is done. Where
other machines share the cores, two threads that multiply matrices took 1.25 times as long for 12 s,
and 1.9 times for 6 s, of 90 s in which nothing else ran."""


class Measured(Protocol):
    """The median of some rounds of the emulated step, in milliseconds."""

    def __call__(self, rounds: int) -> float: ...


def observed_ms(calls: StepCalls, steps: Steps | None) -> float:
    """What a step takes in the run: as it was timed first; or as it was traced after that, where it
    surely took less then. A trace makes no step faster, so the machine was disturbed before.

    What is done now and then need not be in the window of a trace, and is told by the calls; so is
    what compiles, of which the window counts no steps.
    """
    if steps is None or steps.threads > 1 or calls.threads > 1 or calls.compilations > 0:
        return calls.time_ms
    ours = calls.calls_of(steps.function)
    if ours == 0 or round(steps.calls.get(steps.function, 1.0)) != ours:
        return calls.time_ms
    rare_ms = 0.0 if calls.runs_ahead else calls.rare_ms
    timed_ms, most_ms = calls.time_ms - rare_ms, steps.time_ms + 2 * steps.standard_error_ms
    return rare_ms + (steps.time_ms if most_ms < timed_ms else timed_ms)


def undisturbed_ms(
    measured: Measured, observed_ms: float, until: float, *, again_later: bool = True
) -> float:
    """The emulated step, in milliseconds: for more rounds where the first ones are far from what
    was observed, and later again while it takes longer. Others can slow it, and never make it fast.

    `again_later`: False where it was measured in turn with the program, so that others slow both.
    """
    found_ms = measured(FIRST_ROUNDS)
    if is_faithful(found_ms, observed_ms):
        return found_ms
    found_ms = measured(AGAIN_ROUNDS)
    if not again_later:
        return found_ms
    for _ in range(MOST_LATER):
        is_slow = found_ms > observed_ms and not is_faithful(found_ms, observed_ms)
        if not is_slow or time.monotonic() + 2 * LATER_S > until:
            break
        time.sleep(LATER_S)
        found_ms = min(found_ms, measured(FIRST_ROUNDS))
    return found_ms


def is_faithful(emulated_ms: float, observed_ms: float) -> bool:
    """Whether the one is as near to the other as a measurement on it has to be."""
    return abs(math.log(emulated_ms / observed_ms)) <= math.log(1 + FAITHFUL)


def basis_of(alone: Alone) -> Literal["replayed", "estimated"]:
    """What a gain is that was measured on the replayed step."""
    return "estimated" if why_unfaithful(alone) else "replayed"


def why_unfaithful(alone: Alone) -> str | None:
    """Why what is gained on the replayed step does not hold for the program; None if it does."""
    if alone.emulated_ms is None or is_faithful(alone.emulated_ms, alone.observed_ms):
        return None
    return (
        f"its step takes {alone.observed_ms:.3g} ms, replayed {alone.emulated_ms:.3g} ms: "
        "something that the replay lacks matters"
    )
