"""Two live copies of the user's script, resumed and suspended in turn: one pair of a trial."""

import math
import random
import subprocess
import time
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

import psutil

from perfdoctor.injection import injected
from perfdoctor.processes import Ward, peak_rss_bytes, resume, suspend, tree
from perfdoctor.schema.fix import Change
from perfdoctor.schema.launch import Launch
from perfdoctor.trials.duet import COMPILING_SLICE_S, enough
from perfdoctor.trials.live import Live, OutOfTime, PlayerEnded
from perfdoctor.trials.tally import EVERY, STEPS, Tally

SLICE_S, LONGEST_SLICE_S = 1.0, 15.0
SLICE_STEPS = 8
"""In a slice, where steps take long."""
QUIET_S, WARM_STEPS = 1.0, 3
"""So long without a compilation, and so many steps made, a copy counts as steady."""
NEVER_RESTS_S = 8.0
"""A copy that has made steps for so long and still compiles will not cease to."""
START_SHARE = 0.7
"""Of the time that is left: what the start of a pair may take."""
POLL_S = 0.02


class Copy(Live):
    """One copy of the script; it runs until it is suspended."""

    def __init__(self, ward: Ward, launch: Launch, change: Change, function: str) -> None:
        super().__init__(ward)
        self._steps, self._every = Tally(self._folder / STEPS), Tally(self._folder / EVERY)
        self.tells_steps = False
        self.compiles_for_ever = False
        self.slices: list[tuple[int, int]] = []
        """Begin and end of each time that it ran, nanoseconds."""
        env = injected(
            launch.env,
            "perfdoctor.trials.inside",
            folder=str(self._folder),
            function=function,
            settings=change.settings,
            freeze=change.gc_freeze,
            cores=change.cores,
        )
        self._start(launch, env, stdin=subprocess.DEVNULL)
        self._began_ns: int | None = time.monotonic_ns()

    @property
    def makes_steps(self) -> bool:
        """Whether the step is a function that the script itself has jitted."""
        return self._steps.calls > 0

    @property
    def compiles(self) -> int:
        """Programs compiled so far."""
        return self._steps.compiles

    @property
    def compiling_s(self) -> float:
        """What tracing, lowering and compiling took so far."""
        return self._steps.compiling_s

    @property
    def process(self) -> psutil.Process:
        """The first of its processes, to be looked at."""
        return self._child

    def peak_rss_bytes(self) -> int:
        """The most memory that its processes have held, each at its own time."""
        return sum(peak_rss_bytes(process) for process in tree(self._child))

    @property
    def tally(self) -> Tally:
        """Of its steps; of all its jitted calls, where steps are not told."""
        return self._steps if self.tells_steps else self._every

    def resume(self) -> None:
        """Let it go on."""
        self._began_ns = time.monotonic_ns()
        resume(self._child)

    def suspend(self) -> None:
        """Let it rest, if it runs."""
        if self._began_ns is not None:
            suspend(self._child)
            self.slices.append((self._began_ns, time.monotonic_ns()))
            self._began_ns = None

    def run(self, seconds: float) -> None:
        """Let it run for so long; PlayerEnded if it does not live so long."""
        self.resume()
        time.sleep(seconds)
        self.check()
        self.suspend()

    def check(self) -> None:
        """PlayerEnded if it has ended."""
        if self._child.poll() is None:
            return
        if self._child.returncode:
            raise self._why_ended()
        raise PlayerEnded(f"the script ended after {self.tally.calls} steps; give it more")

    def steps_in_slices(self) -> list[float]:
        """Of each slice: the steps made in it, in fractions too."""
        return progress(self.slices, self.tally.since(0))


def progress(slices: Sequence[tuple[int, int]], calls: Sequence[int]) -> list[float]:
    """Steps made in each slice, with the part of a step at its begin and end.

    `slices`: begins and ends in nanoseconds, in order; `calls`: the instants at which steps began.
    Time in which the process was suspended does not count; between two calls, progress is even.
    """
    running_ns = [0]
    for begin, end in slices:
        running_ns.append(running_ns[-1] + end - begin)
    begins = [begin for begin, _ in slices]

    def ran_ns(instant: int) -> int:
        """How long the process had run by then."""
        index = bisect_right(begins, instant) - 1
        if index < 0:
            return 0
        return running_ns[index] + min(instant, slices[index][1]) - begins[index]

    ran = [ran_ns(call) for call in calls]
    if len(ran) < 2 or ran[-1] == ran[0]:
        return [0.0] * len(slices)
    mean_ns = (ran[-1] - ran[0]) / (len(ran) - 1)

    def steps_by(at_ns: int) -> float:
        """Steps made when the process had run for so long."""
        index = bisect_right(ran, at_ns) - 1
        if index < 0:
            return 0.0
        if index == len(ran) - 1:
            return index + min(1.0, (at_ns - ran[index]) / mean_ns)
        gap = ran[index + 1] - ran[index]
        return index + (at_ns - ran[index]) / gap if gap else float(index)

    made = [steps_by(at_ns) for at_ns in running_ns]
    return [after - before for before, after in pairwise(made)]


def play_copies(
    ward: Ward,
    unchanged: Launch,
    changed: Launch,
    change: Change,
    function: str,
    until: float,
) -> list[float]:
    """Log ratios of the step rate, changed over unchanged, one for each round.

    `function`: the jitted function whose calls are the steps. `until`: instant of time.monotonic()
    at which no further round begins. Raises PlayerEnded.
    """
    with (
        Copy(ward, unchanged, Change(), function) as one,
        Copy(ward, changed, change, function) as other,
    ):
        warm_up((one, other), until)
        slice_s = max(slice_s_of(one), slice_s_of(other))
        ratios: list[float] = []
        while not enough(ratios, until):
            order = [one, other]
            random.shuffle(order)
            for copy in order:
                copy.run(slice_s)
            ratios = log_ratios(one, other)
        return ratios


def log_ratios(one: Copy, other: Copy) -> list[float]:
    """By round; the first slice of each is its start, the second one only warms up again."""
    rates = [
        [
            steps / (end - begin)
            for steps, (begin, end) in zip(copy.steps_in_slices(), copy.slices, strict=True)
        ][1:]
        for copy in (one, other)
    ]
    return [math.log(b / a) for a, b in zip(*rates, strict=True) if a > 0 and b > 0]


def warm_up(copies: Sequence[Copy], until: float) -> None:
    """Let all start at the same time, until each is steady or is seen to compile for ever."""
    starting = {copy: Start() for copy in copies}
    began = time.monotonic()
    limit = began + START_SHARE * (until - began)
    while starting:
        time.sleep(POLL_S)
        for copy, start in list(starting.items()):
            copy.check()
            start.note(copy.tally.calls, copy.compiles)
            if start.is_over:
                copy.compiles_for_ever = not start.is_quiet
                copy.suspend()
                del starting[copy]
        if time.monotonic() > limit:
            raise OutOfTime("the budget ended before its gain could be measured")
    tell = all(copy.makes_steps for copy in copies)
    for copy in copies:
        copy.tells_steps = tell


class Start:
    """What a copy does from its launch on."""

    def __init__(self) -> None:
        self._now = self._quiet_since = time.monotonic()
        self._first: float | None = None
        self._compiles, self._calls, self._calls_when_quiet = 0, 0, 0

    def note(self, calls: int, compiles: int) -> None:
        """The numbers of its steps and of its compilations as they are now."""
        self._now = time.monotonic()
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


def slice_s_of(copy: Copy, shortest_s: float = SLICE_S) -> float:
    """How long it must run to be a fair sample."""
    shortest_s = COMPILING_SLICE_S if copy.compiles_for_ever else shortest_s
    return min(LONGEST_SLICE_S, max(shortest_s, SLICE_STEPS * step_s(copy)))


def step_s(copy: Copy) -> float:
    """The median time between the newest calls."""
    newest = copy.tally.since(copy.tally.calls - 20)
    gaps = sorted(after - before for before, after in pairwise(newest))
    return gaps[len(gaps) // 2] / 1e9 if gaps else 0.0
