"""An interleaved pair: two live workers, the unchanged and the changed one, run in turn."""

import math
import random
import time
from collections.abc import Sequence

from perfdoctor.trials.live import OutOfTime, WorkerEnded
from perfdoctor.trials.statistics import LAUNCH_SD, quantile, trimmed_mean
from perfdoctor.trials.worker import LONGEST_SLICE_S, Worker

SLICE_S, SLICE_STEPS = 1.0, 8
"""Seconds of a slice, and steps of the slowest worker in it, at least."""
OWN_SLICE_S, OWN_SLICE_STEPS = 0.5, 2
"""The same of programs of ours, whose steps are all alike: long enough that starting and draining
the pipeline at the ends of a slice does not show, nor which part of a period of several steps it
happened to hold."""
COMPILING_SLICE_S = 3.0
"""Seconds of a slice of a program that never stops compiling."""
FEWEST_ROUNDS, ROUNDS = 5, 10
"""Rounds of slices of a pair: at least so many, where there is time, and at most."""
FEWEST_AT_DEADLINE = 3
"""Rounds that do where the time is up: fewer tell no scatter."""
QUIET_S, WARM_STEPS = 1.0, 3
"""Seconds without a compilation, and steps made, after which a worker counts as steady."""
NEVER_RESTS_S = 8.0
"""A worker that has made steps for so long and still compiles will not cease to."""
START_SHARE = 0.7
"""The share of the time that is left which the start of a pair may take."""
POLL_S = 0.02
"""Seconds between two looks at a worker."""
TURN_S = 0.05
"""Seconds of a turn, where workers start by turns. The compile times of launches scatter by 1.4 %
so, by 2.6 % in turns of 0.25 s; in turns of 0.02 s by 1.2 %, but a start takes 8 % longer."""
TOO_SLOW = "the budget ended before its gain could be measured"
"""What is said of a trial that could not be run in time."""


def play_pair(
    unchanged: Worker,
    changed: Worker,
    until: float,
    slice_s: float = SLICE_S,
    fewest_steps: int = SLICE_STEPS,
) -> list[float]:
    """Log ratios of throughput, changed over unchanged, one for each round.

    Both are just launched. `until`: instant of time.monotonic() at which no further round begins.
    `slice_s`, `fewest_steps`: of a slice, see `steps_of_a_slice`. Raises WorkerEnded.
    """
    pair = (unchanged, changed)
    warm_up(pair, until)
    steps = steps_of_the_rounds(pair, slice_s, fewest_steps)
    before = len(changed.slices)  # its start, and what told its speed; the same of both
    while not enough(ratios := log_ratios(unchanged, changed, before), until):
        for worker in random.sample(pair, 2):
            worker.run(steps[worker])
    return ratios


def steps_of_the_rounds(
    pair: Sequence[Worker], slice_s: float, fewest_steps: int
) -> dict[Worker, int]:
    """The steps of a slice, of each worker. One that compiles anew while it is timed, now that it
    was seen as steady, compiles now and then: then all are timed again, in longer slices.
    """
    known = any(worker.compiles_for_ever for worker in pair)
    compiles = {worker: worker.compiles for worker in pair}
    steps = steps_of_a_slice(pair, slice_s, fewest_steps)
    for worker in pair:
        worker.compiles_for_ever |= worker.compiles > compiles[worker]
    if known or not any(worker.compiles_for_ever for worker in pair):
        return steps
    return steps_of_a_slice(pair, slice_s, fewest_steps)


def log_ratios(unchanged: Worker, changed: Worker, before: int) -> list[float]:
    """The log ratios of samples per second, changed over unchanged, by round; without the slices
    before the first one.
    """
    rounds = zip(unchanged.slices[before:], changed.slices[before:], strict=True)
    per_step = math.log(changed.samples_per_step / unchanged.samples_per_step)
    return [
        per_step + math.log(b.steps / b.seconds) - math.log(a.steps / a.seconds)
        for a, b in rounds
        if a.steps > 0 and b.steps > 0 and a.whole and b.whole
    ]


def enough(ratios: Sequence[float], until: float) -> bool:
    """Whether further rounds could not help: the launch's own noise outweighs theirs by now.

    Raises OutOfTime if the time is up after so few rounds that they say nothing.
    """
    if time.monotonic() > until:
        if len(ratios) < FEWEST_AT_DEADLINE:
            raise OutOfTime(TOO_SLOW)
        return True
    if len(ratios) < FEWEST_ROUNDS:
        return False
    _, error, df = trimmed_mean(ratios)
    return quantile(df) * error < LAUNCH_SD or len(ratios) >= ROUNDS


def warm_up(workers: Sequence[Worker], until: float) -> None:
    """Let all start at the same time, until each is steady or is seen to compile for ever."""
    starts = {worker: Start() for worker in workers}
    limit = limit_of_start(until)
    while any(not start.is_over for start in starts.values()):
        time.sleep(POLL_S)
        for worker, start in starts.items():
            note(worker, start)
        if time.monotonic() > limit:
            raise OutOfTime(TOO_SLOW)
    tell_alike(workers)


def warm_up_by_turns(workers: Sequence[Worker], until: float) -> None:
    """Warm up workers that are paused: only one of them runs at a time, so that all start under the
    same conditions, and what a start takes can be compared.
    """
    starts = {worker: Start() for worker in workers}
    limit = limit_of_start(until)
    while starting := [worker for worker, start in starts.items() if not start.is_over]:
        for worker in random.sample(starting, len(starting)):
            worker.go_on()
            time.sleep(TURN_S)
            note(worker, starts[worker])
            if not starts[worker].is_over:
                worker.pause()
        if time.monotonic() > limit:
            raise OutOfTime(TOO_SLOW)
    tell_alike(workers)


def limit_of_start(until: float) -> float:
    """The instant by which it is to be over."""
    now = time.monotonic()
    return now + START_SHARE * (until - now)


def note(worker: Worker, start: "Start") -> None:
    """How far a worker is that runs; once its start is over, it is suspended. WorkerEnded."""
    if start.is_over:
        return
    worker.check()
    start.note(worker.counters.calls, worker.compiles, worker.ran_s(time.monotonic_ns()))
    if start.is_over:
        worker.compiles_for_ever = not start.is_quiet
        worker.suspend()


def tell_alike(workers: Sequence[Worker]) -> None:
    """Steps are told of all of them or of none."""
    tell = all(worker.makes_steps for worker in workers)
    for worker in workers:
        worker.tells_steps = tell


class Start:
    """What a worker does from its launch on."""

    def __init__(self) -> None:
        self._now = self._quiet_since = 0.0
        self._first: float | None = None
        self._compiles, self._calls, self._calls_when_quiet = 0, 0, 0

    def note(self, calls: int, compiles: int, ran_s: float) -> None:
        """The numbers of its steps and of its compilations, after it ran for so long."""
        self._now = ran_s
        if calls and self._first is None:
            self._first = self._now
        if not calls or compiles != self._compiles:
            self._quiet_since, self._calls_when_quiet = self._now, calls
        self._calls, self._compiles = calls, compiles

    @property
    def is_quiet(self) -> bool:
        """Whether it makes steps and compiles nothing."""
        made = self._calls - self._calls_when_quiet
        return self._now - self._quiet_since > QUIET_S and made >= WARM_STEPS

    @property
    def is_over(self) -> bool:
        """Whether waiting longer would change nothing."""
        for_long = self._first is not None and self._now - self._first > NEVER_RESTS_S
        return self.is_quiet or (for_long and self._calls >= WARM_STEPS)


def steps_of_a_slice(
    workers: Sequence[Worker], shortest_s: float, fewest_steps: int = SLICE_STEPS
) -> dict[Worker, int]:
    """How many steps each of the workers, that are warm, is to make in a slice, so that all take
    about equally long: at least `shortest_s`, and `fewest_steps` of the slowest.
    """
    for_ever = any(worker.compiles_for_ever for worker in workers)
    shortest_s = COMPILING_SLICE_S if for_ever else shortest_s
    step_s = {worker: timed_step_s(worker, shortest_s) for worker in workers}
    seconds = min(LONGEST_SLICE_S, max(shortest_s, fewest_steps * max(step_s.values())))
    return {worker: max(1, round(seconds / step_s[worker])) for worker in workers}


def timed_step_s(worker: Worker, seconds: float) -> float:
    """What a step takes, by a slice of so many seconds or of a single step."""
    worker.run_for(seconds)
    if not worker.slices[-1].steps:
        raise WorkerEnded(f"it made no step in {worker.slices[-1].seconds:.0f} s")
    return worker.slices[-1].seconds / worker.slices[-1].steps
