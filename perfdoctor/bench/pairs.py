"""One pair of a comparison: the baseline twice and the candidate, alive together, run in turn."""

import math
import random
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import fmean, median, pvariance

from perfdoctor.bench.decision import launch_variance
from perfdoctor.bench.launches import Side, Timing, fresh, step_times_ms
from perfdoctor.bench.metrics import KINDS
from perfdoctor.processes import ProcessGroups
from perfdoctor.schema.benchmark import LaunchRecord
from perfdoctor.trials.live import OutOfTime, WorkerEnded
from perfdoctor.trials.pair import steps_of_a_slice, warm_up_by_turns
from perfdoctor.trials.statistics import trimmed_mean
from perfdoctor.trials.worker import Ran, Worker

SLICE_S, TIMED_S, FEWEST_ROUNDS = 0.1, 2.4, 6
"""Many short slices: neighbours share the machine's drifts. In 2.4 s of each worker they leave 0.4
to 0.8 % of noise in a launch of five programs on one core; 1.2 s up to half as much again, 3.6 s up
to a fifth less."""
SHORTEST_TIMED_S, TOLD_BY = 0.6, 3
"""Seconds for which a worker is timed once so many pairs (TOLD_BY) have shown that launches differ
by more than slices do: those of one program that computes on two cores differ by 5 to 10 %, of
which its slices explain 1 to 3 %."""
RARE, RARE_SHARE = 3.0, 0.1
"""A step that takes RARE times as long as is typical, and this share of a slice, holds something
else: a checkpoint, an evaluation or a compilation."""
COMPILING_TIMED_S, RECURS = 12.0, 2
"""Seconds for which a worker is timed whose program compiles now and then, which is told by
compilations in at least RECURS of its slices: the first evaluation compiles once."""
STEP_TIME = "step_time"
"""The name of the metric that every comparison decides on."""
SIDES = 3
"""Processes of a pair: the baseline twice, and the candidate."""


@dataclass(frozen=True)
class Pair:
    """What one pair shows of each metric: differences of logarithms, 0.05 is 5 % more."""

    contrasts: dict[str, float]
    """The candidate against the mean of both baselines."""
    controls: dict[str, float]
    """The second baseline against the first."""
    candidate: LaunchRecord
    baselines: tuple[LaunchRecord, ...]
    start_s: float = 0.0
    """Until all were warm."""
    timed_s: float = TIMED_S
    """Each of them ran, then."""
    scatter: float = 0.0
    """Variance of the logarithm of a launch's step time, by its slices."""


class Pairs:
    """Pairs of two sides, one after the other."""

    def __init__(self, groups: ProcessGroups, baseline: Side, candidate: Side) -> None:
        self._groups, self._baseline, self._candidate = groups, baseline, candidate
        self._played: list[Pair] = []

    def play(self, until: float) -> Pair:
        """The next one, that has to be over by an instant of time.monotonic(). WorkerEnded."""
        timed_s = worth_timing_s(self._played)
        pair = play(self._groups, self._baseline, self._candidate, until, timed_s)
        self._played.append(pair)
        return pair


def worth_timing_s(pairs: Sequence[Pair]) -> float:
    """Seconds for which to time each launch of the next pair, so that a verdict comes soonest.

    Longer if slices scatter much or a start takes long, shorter if launches differ anyway (Kalibera
    and Jones, Rigorous benchmarking in reasonable time, ISMM 2013).
    """
    if len(pairs) < TOLD_BY:
        return TIMED_S
    contrasts = [pair.contrasts[STEP_TIME] for pair in pairs]
    controls = [pair.controls[STEP_TIME] for pair in pairs]
    of_slices = fmean(pair.scatter for pair in pairs)
    of_launches = launch_variance(contrasts, controls) - of_slices
    if of_launches <= 0:
        return TIMED_S
    in_a_second = fmean(pair.scatter * pair.timed_s for pair in pairs)
    start_s = fmean(pair.start_s for pair in pairs) / SIDES
    best_s = math.sqrt(start_s * in_a_second / of_launches)
    return min(TIMED_S, max(SHORTEST_TIMED_S, best_s))


def play(
    groups: ProcessGroups, baseline: Side, candidate: Side, until: float, timed_s: float = TIMED_S
) -> Pair:
    """Three fresh processes, suspended and resumed in turn. Raises WorkerEnded.

    `until`: instant of time.monotonic() by which it has to be over. `timed_s`: how long each runs
    once all are warm.
    """
    sides = (baseline, baseline, candidate)
    began = time.monotonic()
    with ExitStack() as stack:
        workers = start(stack, groups, sides, until)
        start_s = time.monotonic() - began
        timings = [Timing(worker, side) for worker, side in zip(workers, sides, strict=True)]
        rounds = by_turns(workers, until, timed_s)
        steps = [
            step_log(worker.slices[-rounds:], worker.counters.since(0), side.stride)
            for worker, side in zip(workers, sides, strict=True)
        ]
        own = [timing.meanwhile().own_cores for timing in timings]
        records = [
            timing.record(beside=sum(own) - used) for timing, used in zip(timings, own, strict=True)
        ]
    found = {
        kind.name: differences([math.log(kind.of(each)) for each in records])
        for kind in KINDS
        if all(kind.of(each) > 0 for each in records)
    }
    found[STEP_TIME] = differences([log for log, _ in steps])
    return Pair(
        contrasts={name: pair[0] for name, pair in found.items()},
        controls={name: pair[1] for name, pair in found.items()},
        candidate=records[-1],
        baselines=tuple(records[:-1]),
        start_s=start_s,
        timed_s=fmean(sum(each.seconds for each in worker.slices[-rounds:]) for worker in workers),
        scatter=fmean(scatter for _, scatter in steps),
    )


def start(
    stack: ExitStack, groups: ProcessGroups, sides: Sequence[Side], until: float
) -> list[Worker]:
    """A worker of each side, warm and suspended. They start by turns, for their compilation is
    timed too: two that compile at the same time, or one after another, differ by up to a half on
    two shared cores.
    """
    workers = []
    for side in sides:
        worker = stack.enter_context(fresh(groups, side, until))
        worker.pause()
        workers.append(worker)
    warm_up_by_turns(workers, until)
    if not all(worker.tells_steps for worker in workers):
        raise WorkerEnded("the step is not a function that the program itself passes to jax.jit")
    return workers


def by_turns(workers: Sequence[Worker], until: float, timed_s: float) -> int:
    """Let each run until that is enough; in how many rounds, of a slice of each in random order."""
    steps = steps_of_a_slice(workers, SLICE_S)
    rounds: list[list[float]] = []
    compiling = dict.fromkeys(workers, 0)
    while not enough(rounds, timed_s, recompiles=max(compiling.values()) >= RECURS):
        longest_s = max((max(each) for each in rounds), default=0.0)
        if time.monotonic() + longest_s * len(workers) > until:
            raise OutOfTime("the budget ended before the pair was complete")
        for worker in random.sample(workers, len(workers)):
            before = worker.compiles
            worker.run(steps[worker])
            compiling[worker] += worker.compiles > before
        rounds.append([worker.slices[-1].seconds for worker in workers])
    return len(rounds)


def enough(rounds: Sequence[Sequence[float]], timed_s: float, *, recompiles: bool) -> bool:
    """Whether the workers ran for long enough; `rounds`: the seconds of each one's slice."""
    wanted_s = COMPILING_TIMED_S if recompiles else timed_s
    return len(rounds) >= FEWEST_ROUNDS and sum(fmean(each) for each in rounds) >= wanted_s


def step_log(slices: Sequence[Ran], calls: Sequence[int], stride: int) -> tuple[float, float]:
    """The logarithm of the seconds that a step takes, and its variance, by the scatter of the
    slices; WorkerEnded if there was no step.

    Other programs on the machine slow some slices down by a fifth to a half: trimmed away, that
    leaves half to four fifths of the noise. What the program itself does rarely is no less its own,
    and counts in full, but for what lies in the last step of a slice, which also waits for all that
    was dispatched. Unseen stays what is too short to be told from a step (RARE, RARE_SHARE), in
    less than a fifth of the slices: below 2 % of the time, 5 % where a slice has but eight steps.

    `calls`: the instants at which the step's function was called, `stride` times a step.
    """
    steps = sum(each.steps for each in slices)
    if not steps:
        raise WorkerEnded(f"it made no step in {sum(each.seconds for each in slices):.0f} s")
    rare_s = rare_seconds([step_times_ms(calls, [each], stride)[:-1] for each in slices], slices)
    usual_s = [
        (each.seconds - rare) / each.steps
        for each, rare in zip(slices, rare_s, strict=True)
        if each.steps
    ]
    usual, error_s, _ = trimmed_mean(usual_s)
    step_s = usual + sum(rare_s) / steps
    rare_variance = len(slices) * pvariance(rare_s) / steps**2
    return math.log(step_s), (error_s**2 + rare_variance) / step_s**2


def rare_seconds(times_ms: Sequence[Sequence[float]], slices: Sequence[Ran]) -> list[float]:
    """The seconds that each slice takes longer than is typical, and spends in single long steps;
    all of a slice that has no step. A single long step may be the wait for what was dispatched
    before.
    """
    typical_ms = median([ms for each in times_ms for ms in each] or [0.0])
    typical_s = median(each.seconds / each.steps for each in slices if each.steps)

    def of(own_ms: Sequence[float], ran: Ran) -> float:
        if not ran.steps:
            return ran.seconds
        least_ms = max(RARE * typical_ms, RARE_SHARE * ran.seconds * 1e3)
        in_long_s = sum(ms for ms in own_ms if ms > least_ms) / 1e3
        return min(in_long_s, max(0.0, ran.seconds - ran.steps * typical_s))

    return [of(own_ms, ran) for own_ms, ran in zip(times_ms, slices, strict=True)]


def differences(logs: Sequence[float]) -> tuple[float, float]:
    """Contrast and control of baseline, baseline again, candidate."""
    one, again, other = logs
    return other - fmean((one, again)), again - one
