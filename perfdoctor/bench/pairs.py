"""One pair of a comparison: the baseline twice and the candidate, alive together, run in turn."""

import math
import random
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import fmean

from perfdoctor.processes import Ward, cpu_seconds, peak_rss_bytes, tree
from perfdoctor.schema.fix import Change
from perfdoctor.schema.launch import Launch
from perfdoctor.trials.copies import Copy, slice_s_of, warm_up
from perfdoctor.trials.live import PlayerEnded
from perfdoctor.trials.statistics import trimmed_mean

SLICE_S, ROUNDS = 0.5, 6
"""What is left of the noise of slices is then below that between launches."""


@dataclass(frozen=True)
class Side:
    """What is compared: a program and its step."""

    launch: Launch
    function: str
    """The jitted function whose calls make the steps."""
    stride: float
    """Its calls a step."""


@dataclass(frozen=True)
class Pair:
    """By metric, the difference of the logarithms: 0.05 is 5 % more."""

    contrasts: dict[str, float]
    """The candidate against the mean of both baselines."""
    controls: dict[str, float]
    """The second baseline against the first."""


def play(ward: Ward, baseline: Side, candidate: Side, until: float) -> Pair:
    """Three fresh processes, suspended and resumed in turn. Raises PlayerEnded.

    `until`: instant of time.monotonic() by which it has to be over.
    """
    sides = (baseline, baseline, candidate)
    with ExitStack() as stack:
        began_ns = time.monotonic_ns()
        copies = [
            stack.enter_context(Copy(ward, side.launch, Change(), side.function)) for side in sides
        ]
        warm_up(copies, until)
        if not all(copy.tells_steps for copy in copies):
            raise PlayerEnded("the step is no function that the program itself has jitted")
        started = [
            {
                "compile_time": copy.compiling_s,
                "first_step": (copy.tally.since(0)[math.ceil(side.stride)] - began_ns) / 1e9,
            }
            for copy, side in zip(copies, sides, strict=True)
        ]
        before = [cpu_s(copy) for copy in copies]
        step_logs = by_turns(copies, sides, until)
        ran = [
            {
                "cpu_time": (cpu_s(copy) - cpu) / sum(copy.steps_in_slices()[1:]) * side.stride,
                "peak_memory": float(sum(map(peak_rss_bytes, tree(copy.process)))),
            }
            for copy, side, cpu in zip(copies, sides, before, strict=True)
        ]
    logs = [
        {name: math.log(value) for name, value in {**start, **run}.items() if value > 0}
        for start, run in zip(started, ran, strict=True)
    ]
    known = [name for name in logs[0] if all(name in each for each in logs)]
    once = {name: differences([each[name] for each in logs]) for name in known}
    steps = [differences(each) for each in zip(*step_logs, strict=True)]
    found = {"step_time": tuple(trimmed_mean(column)[0] for column in zip(*steps, strict=True))}
    every = {**found, **once}
    return Pair(
        contrasts={name: pair[0] for name, pair in every.items()},
        controls={name: pair[1] for name, pair in every.items()},
    )


def by_turns(copies: Sequence[Copy], sides: Sequence[Side], until: float) -> list[list[float]]:
    """Of each copy, the logarithm of its step time in each round; all run once in a round, in
    random order.
    """
    slice_s = max(slice_s_of(copy, SLICE_S) for copy in copies)
    for _ in range(ROUNDS):
        if time.monotonic() + slice_s * len(copies) > until:
            raise PlayerEnded("the budget ended before the pair was complete")
        for copy in random.sample(copies, len(copies)):
            copy.run(slice_s)
    return [step_logs(copy, side.stride) for copy, side in zip(copies, sides, strict=True)]


def step_logs(copy: Copy, stride: float) -> list[float]:
    """Of each slice after the start: log of seconds a step."""
    steps = copy.steps_in_slices()[1:]
    if min(steps) <= 0:
        raise PlayerEnded("it made no step in a slice")
    times = zip(copy.slices[1:], steps, strict=True)
    return [math.log((end - begin) / 1e9 / made * stride) for (begin, end), made in times]


def differences(logs: Sequence[float]) -> tuple[float, float]:
    """Contrast and control of baseline, baseline again, candidate."""
    one, again, other = logs
    return other - fmean((one, again)), again - one


def cpu_s(copy: Copy) -> float:
    """CPU time of its process tree so far."""
    return sum(map(cpu_seconds, tree(copy.process)))
