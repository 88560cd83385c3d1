"""A live process that counts its steps in memory that it shares with us, and rests when asked to.

Whenever it is not its turn it is suspended, at rest: what it has begun is computed by then, so that
between two rests what was counted is what was done.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from perfdoctor.counters import EVERY, STEPS
from perfdoctor.injection import injected
from perfdoctor.process_tree import resume, resume_alone, resume_descendants, suspend, tree
from perfdoctor.processes import ProcessGroups, peak_rss_bytes
from perfdoctor.schema.fix import Change
from perfdoctor.schema.launch import Launch
from perfdoctor.trials.live import Live, WorkerEnded
from perfdoctor.trials.shared_counters import SharedCounters

LONGEST_SLICE_S = 15.0
"""Seconds after which a slice ends, however few steps it holds."""
REST_POLL_S = 5e-3
"""The worker itself notes when it rests; looking for that more often would take time from it."""
REST_LIMIT_S = 2 * LONGEST_SLICE_S
"""What a worker may take to come to rest: its steps, and an evaluation or a checkpoint."""
Attach = Callable[[Launch, Path], Launch]
"""Makes a process count: of its launch and its folder, where the counters lie, what to launch."""


def calls_of(function: str, change: Change) -> Attach:
    """A script as a worker: code of ours is put into it that counts the calls of its jitted
    functions, and makes those parts of the change that are made from inside.

    `function`: the jitted function whose calls make the steps.
    """

    def attach(launch: Launch, folder: Path) -> Launch:
        env = injected(
            launch.env,
            "perfdoctor.trials.inside",
            folder=str(folder),
            function=function,
            settings=change.settings,
            freeze=change.gc_freeze,
            skip_collect=change.gc_skip_collect,
            cores=change.cores,
        )
        return replace(launch, env=env)

    return attach


def own_steps(launch: Launch, folder: Path) -> Launch:
    """A program of ours as a worker: it counts its steps itself, and is told where."""
    return replace(launch, command=(*launch.command, "--counters", str(folder)))


@dataclass(frozen=True)
class Ran:
    """One uninterrupted piece of a worker's run, from rest to rest."""

    begin_ns: int
    end_ns: int
    steps: float
    whole: bool = True
    """Whether it was not broken off because the time was up."""

    @property
    def seconds(self) -> float:
        """How long it ran."""
        return (self.end_ns - self.begin_ns) / 1e9


class Worker(Live):
    """It runs from its launch on, until it is suspended.

    `attach`: how it is made to count. `until`: instant of time.monotonic() from which on it is
    suspended without waiting for its step. `stride`: calls of a script's function that make a step.
    `tells_steps`: whether it is known to count its steps, as programs of ours do; what a script
    counts is only seen once it is warm.
    """

    def __init__(
        self,
        groups: ProcessGroups,
        launch: Launch,
        attach: Attach,
        until: float,
        *,
        stride: int = 1,
        tells_steps: bool = False,
    ) -> None:
        super().__init__(groups)
        self._until, self._stride = until, stride
        self._steps, self._every = (
            SharedCounters(self._folder / STEPS),
            SharedCounters(self._folder / EVERY),
        )
        self.tells_steps = tells_steps
        self.compiles_for_ever = False
        self.slices: list[Ran] = []
        """Each time that it ran, the first of them its start."""
        self._start(attach(launch, self._folder))
        self._launched_ns = time.monotonic_ns()
        self._began_ns: int | None = self._launched_ns
        self._paused_at_ns: int | None = None
        self._calls_before = 0  # when it was resumed

    @property
    def makes_steps(self) -> bool:
        """Whether it has counted a step: of a script, a call of the step's function."""
        return self._steps.calls > 0

    @property
    def samples_per_step(self) -> int:
        """1, if it does not tell them: of a script, the samples of a step are not known."""
        return self._steps.samples_per_step

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
    def counters(self) -> SharedCounters:
        """The counters of its steps; of all its jitted calls, where it is not known which make the
        steps.
        """
        return self._steps if self.tells_steps else self._every

    def suspend(self) -> None:
        """Let it rest after its next call, if it runs."""
        if self._began_ns is not None:
            self.counters.ask_to_rest(at_call=1)
            self._until_it_rests()

    def pause(self) -> None:
        """Suspend it where it is, in the middle of its start."""
        self._paused_at_ns = suspend(self._child)

    def go_on(self) -> None:
        """Let it run on after a pause."""
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
        """Let it run for so long, and to the end of its step; WorkerEnded if it ends before."""
        self._resume()
        time.sleep(seconds)
        self.suspend()
        self.check()

    def run(self, steps: int) -> None:
        """Let it make so many steps; WorkerEnded if it ends before."""
        self._resume(self.counters.calls + steps * self._calls_a_step)
        self._until_it_rests()
        self.check()

    @property
    def _calls_a_step(self) -> int:
        return self._stride if self.tells_steps else 1

    def __exit__(self, *why: object) -> None:
        self._let_go_on()  # what it does when it is asked to leave may call its step
        super().__exit__(*why)

    def _let_go_on(self) -> None:
        for counters in (self._steps, self._every):  # whichever it rests by
            counters.let_go_on()

    def _resume(self, rest_at_call: int | None = None) -> None:
        self._let_go_on()
        if rest_at_call is not None:
            self.counters.ask_to_rest(rest_at_call)
        self._calls_before = self.counters.calls
        self._began_ns = resume(self._child)

    def _until_it_rests(self) -> None:
        """Then it is suspended, with all processes that it has; one that does not come to rest is
        suspended where it is.
        """
        assert self._began_ns is not None
        until = min(self._until, time.monotonic() + REST_LIMIT_S)
        while not self.counters.rests_since_ns and self._lives and time.monotonic() < until:
            time.sleep(REST_POLL_S)
        suspend(self._child)
        rests_since_ns = self.counters.rests_since_ns
        ended_ns = rests_since_ns or time.monotonic_ns()
        steps = (self.counters.calls - self._calls_before) / self._calls_a_step
        whole = rests_since_ns > 0 or time.monotonic() < self._until
        self.slices.append(Ran(self._began_ns, ended_ns, steps, whole))
        self._began_ns = None

    def check(self) -> None:
        """WorkerEnded if it has ended."""
        if self._lives:
            return
        if self._child.returncode:
            raise self._why_ended()
        raise WorkerEnded(f"the script ended after {self.counters.calls} steps; give it more")

    @property
    def _lives(self) -> bool:
        return self._child.poll() is None
