"""What a step costs: XLA's accounts of all programs that it runs, added up."""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from perfdoctor.observe.digest.executable import is_of
from perfdoctor.observe.digest.repetition import calls_made
from perfdoctor.schema.program import StepCost
from perfdoctor.schema.recording import ExecutableRecord, Recording
from perfdoctor.schema.steps import Steps

EACH_STEP = 0.5
"""Calls a step from which on a function is part of it: an evaluation is called less often."""


class Part(NamedTuple):
    """A program of a step."""

    times: int
    """How often a step runs it."""
    function: str
    size: int | None
    """Bytes of its arguments, which tell programs of one name apart; None if they are not known."""


def cost_of(steps: Steps, recording: Recording) -> StepCost | None:
    """What a step of the window costs; None if XLA keeps no account of its main function."""
    runs = [
        (part.times, record)
        for part in parts_of(steps, recording)
        for record in account(part, recording)
    ]
    if not any(is_of(record, steps.function) for _, record in runs):
        return None
    return StepCost(
        programs=sum(times for times, _ in runs),
        flops=added((times, record.flops) for times, record in runs),
        bytes_accessed=added((times, record.bytes_accessed) for times, record in runs),
        temp_bytes=max(record.temp_bytes for _, record in runs),
    )


def parts_of(steps: Steps, recording: Recording) -> list[Part]:
    """The programs of a step: as its calls were looked at before the window, else by their names in
    the window.
    """
    return probed(steps, recording) or traced(steps)


def probed(steps: Steps, recording: Recording) -> list[Part]:
    """The programs of a step by the calls that were looked at before the window: their arguments
    tell functions of one name apart, and the programs of one function. Empty where the window holds
    other steps.
    """
    known, made = recording.step_calls, calls_made(recording)
    if known is None or steps.threads != 1 or not made[steps.function]:
        return []
    times = max(1, round(steps.calls.get(steps.function, 0.0) / made[steps.function]))
    made_so = Counter(
        (each.function, sum(leaf.bytes for leaf in each.leaves)) for each in known.calls
    )
    return [Part(times * count, *which) for which, count in made_so.items()]


def traced(steps: Steps) -> list[Part]:
    """The programs of a step by the names of the functions that were called in the window."""
    calls = steps.calls if steps.threads == 1 else {steps.function: 1.0}
    return [
        Part(max(1, round(often)), function, None)
        for function, often in calls.items()
        if often >= EACH_STEP
    ]


def account(part: Part, recording: Recording) -> list[ExecutableRecord]:
    """XLA's account of a program: of those of a function with this name the one whose arguments
    take so many bytes, else the one that moves most. One, or none where XLA keeps none.
    """
    named = [each for each in recording.executables if is_of(each, part.function)]
    return [each for each in named if each.argument_bytes == part.size][:1] or named[:1]


def added(parts: Iterable[tuple[int, float | None]]) -> float | None:
    """The sum of what is run so often; None if one of them is not known."""
    total = 0.0
    for times, value in parts:
        if value is None:
            return None
        total += times * value
    return total
