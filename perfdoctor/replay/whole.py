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


def way_of_whole(eager: Eager | None, started: Started) -> Way | None:
    """How it is measured what jitting the function as a whole gains; None if there is none, or it
    could not be saved. What the main thread does beside its calls it does then while the device
    computes; others work beside it as before.
    """
    if eager is None or not eager.is_saved:
        return None
    took_ms = eager.call_ms / eager.share
    conditions = Conditions(
        spin_ms=(took_ms - eager.call_ms,),
        threads_ms=eager.threads_cpu_ms,
        children_ms=eager.children_cpu_ms,
    )

    def play(_: Change, until: float) -> list[float]:
        with started() as process:
            seconds = slice_s(process.run(conditions, SLICE_S, until))
            ratios: list[float] = []
            while not enough(ratios, until):
                jitted_ms = a_step_ms(process.run(conditions, seconds, until))
                ratios.append(math.log(took_ms / jitted_ms))
        return ratios

    return Way(play, lambda change: "jitted" in change.step, "replayed", None, pair_s=PAIR_S)


def told_of_whole(eager: Eager, started: Started, until: float) -> Alone:
    """What the function takes as one program; WorkerEnded."""
    with started() as process:
        seconds = slice_s(process.run(Conditions(), SLICE_S, until))
        found = [process.run(Conditions(), seconds, until) for _ in range(FIRST_ROUNDS)]
    alone_ms = median(map(a_step_ms, found))
    return Alone(alone_ms=alone_ms, emulated_ms=None, observed_ms=eager.call_ms)
