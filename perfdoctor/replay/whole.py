"""Replays a function that dispatches its operations as one program."""

import math
from collections.abc import Callable
from statistics import median

from perfdoctor.replay.conditions import EACH_STEP
from perfdoctor.replay.process import ReplayProcess
from perfdoctor.replay.slices import FIRST_ROUNDS, PAIR_S, SLICE_S, a_step_ms, slice_s
from perfdoctor.schema.calls import Alone, Eager
from perfdoctor.schema.capture import Conditions
from perfdoctor.schema.fix import Change
from perfdoctor.schema.steps import Steps
from perfdoctor.trials.pair import enough
from perfdoctor.trials.way import Way

Started = Callable[[], ReplayProcess]
"""Starts a process that runs the program."""


def ways_of_whole(eager: Eager | None, steps: Steps | None, started: Started) -> list[Way]:
    """How it is measured what jitting the function as a whole gains; none if there is none, or it
    could not be saved.

    What the device computes in other jitted functions is left to do: its part of a step is known
    from the timeline only, so that the gain is an estimate.
    """
    if eager is None or not eager.is_saved:
        return []
    took_ms, conditions = loop_ms(eager), beside_calls(eager, steps)

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


def loop_ms(eager: Eager) -> float:
    """From one call of the function to the next."""
    return eager.call_ms / eager.share


def beside_calls(eager: Eager, steps: Steps | None) -> Conditions:
    """What goes on beside the function's calls, once they are jitted.

    What the main thread does beside them, and what a jitted call takes for the trees of its
    arguments, it does while the device computes, unless it waits for each call: then after that.
    Others work beside it as before, and a step waits where these fall behind.
    """
    waits, waited_ms = waiting(eager, steps)
    worked_ms = max(0.0, loop_ms(eager) - eager.call_ms - waited_ms)
    return Conditions(
        spin_ms=(worked_ms + eager.trees_ms,),
        waits=1.0 if eager.call_waits else waits,
        threads_ms=eager.threads_cpu_ms,
        threads_set_pace=True,
        children_ms=eager.children_cpu_ms,
        children_set_pace=True,
        children=eager.children,
    )


def waiting(eager: Eager, steps: Steps | None) -> tuple[float, float]:
    """The share of the calls whose results the main thread waits for, all or none; and for how long
    it waits, in milliseconds a call. The timeline's steps may be parts of a call, or several.
    """
    if steps is None or not steps.is_traced or steps.time_ms <= 0:
        return 0.0, 0.0
    a_call = loop_ms(eager) / steps.time_ms
    each = steps.synchronized * a_call >= EACH_STEP
    return (1.0, steps.wait_ms * a_call) if each else (0.0, 0.0)


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
