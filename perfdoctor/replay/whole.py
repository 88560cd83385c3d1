"""Replays a function that dispatches its operations as one program."""

import math
from collections.abc import Callable
from statistics import median

from perfdoctor.replay.process import ReplayProcess
from perfdoctor.replay.slices import FIRST_ROUNDS, PAIR_S, SLICE_S, a_step_ms, slice_s
from perfdoctor.schema.calls import Alone, Eager
from perfdoctor.schema.capture import Conditions
from perfdoctor.schema.fix import Change
from perfdoctor.trials.pair import enough
from perfdoctor.trials.way import Way

Started = Callable[[], ReplayProcess]
"""Starts a process that runs the program."""


def ways_of_whole(eager: Eager | None, started: Started) -> list[Way]:
    """How it is measured what jitting the function as a whole gains; none if there is none, or it
    could not be saved. What the main thread does beside its calls, and what a jitted call takes for
    the trees of its arguments, it does then while the device computes, unless such a call waits for
    that; others work beside it as before, and a step waits where these fall behind.

    What the device computes in other jitted functions is left to do, too: its part of a step is
    known from the timeline only, so that the gain is an estimate.
    """
    if eager is None or not eager.is_saved:
        return []
    took_ms = eager.call_ms / eager.share
    conditions = Conditions(
        spin_ms=(took_ms - eager.call_ms + eager.trees_ms,),
        waits=float(eager.call_waits),
        threads_ms=eager.threads_cpu_ms,
        threads_set_pace=True,
        children_ms=eager.children_cpu_ms,
        children_set_pace=True,
        children=eager.children,
    )

    def play(change: Change, until: float) -> list[float]:
        others_ms = others_of(change) * took_ms
        with started() as process:
            seconds = slice_s(process.run(conditions, SLICE_S, until))
            ratios: list[float] = []
            while not enough(ratios, until):
                jitted_ms = a_step_ms(process.run(conditions, seconds, until))
                if others_ms > 0:
                    alone_ms = a_step_ms(process.run(Conditions(), seconds, until))
                    jitted_ms = max(jitted_ms, alone_ms + others_ms)
                ratios.append(math.log(took_ms / jitted_ms))
        return ratios

    def is_all(change: Change) -> bool:
        return "jitted" in change.step and not others_of(change)

    def is_beside_others(change: Change) -> bool:
        return "jitted" in change.step and others_of(change) > 0

    return [
        Way(play, is_all, "replayed", None, pair_s=PAIR_S),
        Way(play, is_beside_others, "estimated", None, pair_s=PAIR_S),
    ]


def others_of(change: Change) -> float:
    """The share of a step that the device computes in other jitted functions."""
    return float(change.step.get("others") or 0.0)


def told_of_whole(eager: Eager, started: Started, until: float) -> Alone:
    """What the function takes as one program; WorkerEnded."""
    with started() as process:
        seconds = slice_s(process.run(Conditions(), SLICE_S, until))
        found = [process.run(Conditions(), seconds, until) for _ in range(FIRST_ROUNDS)]
    alone_ms = median(map(a_step_ms, found))
    return Alone(alone_ms=alone_ms, emulated_ms=None, observed_ms=eager.call_ms)
