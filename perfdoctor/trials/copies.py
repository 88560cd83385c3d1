"""Two live copies of the user's script, resumed and suspended in turn: one pair of a trial."""

import math
import random
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass

import psutil

from perfdoctor.injection import injected
from perfdoctor.processes import (
    Ward,
    peak_rss_bytes,
    resume,
    resume_alone,
    resume_descendants,
    suspend,
    tree,
)
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
TURN_S = 0.05
"""Of a start by turns. The compile times of launches scatter by 1.4 % so, by 2.6 % in turns of
0.25 s; in turns of 0.02 s by 1.2 %, but a start takes 8 % longer."""
TOO_SLOW = "the budget ended before its gain could be measured"
POLL_S, REST_POLL_S = 0.02, 5e-3
"""The copy itself notes when it rests; looking for that more often would take time from it."""
REST_LIMIT_S = 2 * LONGEST_SLICE_S
"""What a copy may take to come to rest: its steps, and an evaluation or a checkpoint."""


@dataclass(frozen=True)
class Ran:
    """One uninterrupted piece of a copy's run, from rest to rest."""

    begin_ns: int
    end_ns: int
    steps: float

    @property
    def seconds(self) -> float:
        """How long it ran."""
        return (self.end_ns - self.begin_ns) / 1e9


class Copy(Live):
    """One copy of the script; it runs until it is suspended.

    `function`: the jitted function whose calls make the steps, `stride` of them a step. `until`:
    instant of time.monotonic() from which on it is suspended without waiting for its step.
    """

    def __init__(
        self,
        ward: Ward,
        launch: Launch,
        change: Change,
        function: str,
        until: float,
        stride: int = 1,
    ) -> None:
        super().__init__(ward)
        self._until, self._stride = until, stride
        self._steps, self._every = Tally(self._folder / STEPS), Tally(self._folder / EVERY)
        self.tells_steps = False
        self.compiles_for_ever = False
        self.slices: list[Ran] = []
        """Each time that it ran, the first of them its start."""
        env = injected(
            launch.env,
            "perfdoctor.trials.inside",
            folder=str(self._folder),
            function=function,
            settings=change.settings,
            freeze=change.gc_freeze,
            skip_collect=change.gc_skip_collect,
            cores=change.cores,
        )
        self._start(launch, env, stdin=subprocess.DEVNULL)
        self._launched_ns = time.monotonic_ns()
        self._began_ns: int | None = self._launched_ns
        self._paused_at_ns: int | None = None
        self._calls_before = 0  # when it was resumed

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

    def suspend(self) -> None:
        """Let it rest after its next call, if it runs."""
        if self._began_ns is not None:
            self.tally.ask_to_rest(at_call=1)
            self._until_it_rests()

    def pause(self) -> None:
        """Suspend it where it is, in the middle of its start."""
        self._paused_at_ns = suspend(self._child)

    def go_on(self) -> None:
        """After a pause."""
        assert self._paused_at_ns is not None
        resume_descendants(self._child)
        self._steps.note_pause(self._paused_at_ns, time.monotonic_ns())
        self._paused_at_ns = None
        resume_alone(self._child)

    def ran_s(self, until_ns: int) -> float:
        """How long it ran from its launch to an instant of time.monotonic_ns()."""
        paused_ns = self._steps.paused_ns(self._launched_ns, until_ns)
        return (until_ns - self._launched_ns - paused_ns) / 1e9

    def run_for(self, seconds: float) -> None:
        """Let it run for so long, and to the end of its step; PlayerEnded if it ends before."""
        self._resume()
        time.sleep(seconds)
        self.suspend()
        self.check()

    def run(self, steps: int) -> None:
        """Let it make so many steps; PlayerEnded if it ends before."""
        self._resume(self.tally.calls + steps * self._calls_a_step)
        self._until_it_rests()
        self.check()

    @property
    def _calls_a_step(self) -> int:
        return self._stride if self.tells_steps else 1

    def __exit__(self, *why: object) -> None:
        self._let_go_on()  # what it does when it is asked to leave may call its step
        super().__exit__(*why)

    def _let_go_on(self) -> None:
        for tally in (self._steps, self._every):  # whichever it rests by
            tally.let_go_on()

    def _resume(self, rest_at_call: int | None = None) -> None:
        self._let_go_on()
        if rest_at_call is not None:
            self.tally.ask_to_rest(rest_at_call)
        self._calls_before = self.tally.calls
        self._began_ns = resume(self._child)

    def _until_it_rests(self) -> None:
        """Then it is suspended, with all processes that it has; one that does not come to rest is
        suspended where it is.
        """
        assert self._began_ns is not None
        until = min(self._until, time.monotonic() + REST_LIMIT_S)
        while not self.tally.rests_since_ns and self._lives and time.monotonic() < until:
            time.sleep(REST_POLL_S)
        suspend(self._child)
        ended_ns = self.tally.rests_since_ns or time.monotonic_ns()
        steps = (self.tally.calls - self._calls_before) / self._calls_a_step
        self.slices.append(Ran(self._began_ns, ended_ns, steps))
        self._began_ns = None

    def check(self) -> None:
        """PlayerEnded if it has ended."""
        if self._lives:
            return
        if self._child.returncode:
            raise self._why_ended()
        raise PlayerEnded(f"the script ended after {self.tally.calls} steps; give it more")

    @property
    def _lives(self) -> bool:
        return self._child.poll() is None


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
        Copy(ward, unchanged, Change(), function, until) as one,
        Copy(ward, changed, change, function, until) as other,
    ):
        warm_up((one, other), until)
        steps = steps_of_a_slice((one, other), SLICE_S)
        while not enough(log_ratios(one, other), until):
            for copy in random.sample((one, other), 2):
                copy.run(steps[copy])
        return log_ratios(one, other)


def log_ratios(one: Copy, other: Copy) -> list[float]:
    """By round; the first slices of each are its start, and that which told its speed."""
    rates = [[each.steps / each.seconds for each in copy.slices[2:]] for copy in (one, other)]
    return [math.log(b / a) for a, b in zip(*rates, strict=True) if a > 0 and b > 0]


def warm_up(copies: Sequence[Copy], until: float) -> None:
    """Let all start at the same time, until each is steady or is seen to compile for ever."""
    starts = {copy: Start() for copy in copies}
    limit = limit_of_start(until)
    while any(not start.is_over for start in starts.values()):
        time.sleep(POLL_S)
        for copy, start in starts.items():
            note(copy, start)
        if time.monotonic() > limit:
            raise OutOfTime(TOO_SLOW)
    tell_alike(copies)


def warm_up_by_turns(copies: Sequence[Copy], until: float) -> None:
    """The same of copies that are paused: only one of them runs at a time, so that all start under
    the same conditions, and what a start takes can be compared.
    """
    starts = {copy: Start() for copy in copies}
    limit = limit_of_start(until)
    while starting := [copy for copy, start in starts.items() if not start.is_over]:
        for copy in random.sample(starting, len(starting)):
            copy.go_on()
            time.sleep(TURN_S)
            note(copy, starts[copy])
            if not starts[copy].is_over:
                copy.pause()
        if time.monotonic() > limit:
            raise OutOfTime(TOO_SLOW)
    tell_alike(copies)


def limit_of_start(until: float) -> float:
    """The instant by which it is to be over."""
    now = time.monotonic()
    return now + START_SHARE * (until - now)


def note(copy: Copy, start: "Start") -> None:
    """How far a copy is that runs; once its start is over, it is suspended. PlayerEnded."""
    if start.is_over:
        return
    copy.check()
    start.note(copy.tally.calls, copy.compiles, copy.ran_s(time.monotonic_ns()))
    if start.is_over:
        copy.compiles_for_ever = not start.is_quiet
        copy.suspend()


def tell_alike(copies: Sequence[Copy]) -> None:
    """Steps are told of all of them or of none."""
    tell = all(copy.makes_steps for copy in copies)
    for copy in copies:
        copy.tells_steps = tell


class Start:
    """What a copy does from its launch on."""

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


def steps_of_a_slice(copies: Sequence[Copy], shortest_s: float) -> dict[Copy, int]:
    """How many steps each of the copies, that are warm, is to make in a slice, so that all take
    about equally long: at least `shortest_s`, and SLICE_STEPS of the slowest.
    """
    for_ever = any(copy.compiles_for_ever for copy in copies)
    shortest_s = COMPILING_SLICE_S if for_ever else shortest_s
    step_s = {copy: timed_step_s(copy, shortest_s) for copy in copies}
    seconds = min(LONGEST_SLICE_S, max(shortest_s, SLICE_STEPS * max(step_s.values())))
    return {copy: max(1, round(seconds / step_s[copy])) for copy in copies}


def timed_step_s(copy: Copy, seconds: float) -> float:
    """What a step takes, by a slice of so many seconds or of a single step."""
    copy.run_for(seconds)
    if not copy.slices[-1].steps:
        raise PlayerEnded(f"it made no step in {copy.slices[-1].seconds:.0f} s")
    return copy.slices[-1].seconds / copy.slices[-1].steps
