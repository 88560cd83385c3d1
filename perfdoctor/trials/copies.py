"""Two live copies of the user's script, resumed and suspended in turn: one pair of a trial."""

import math
import random
import subprocess
import sys
import time
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Self

from perfdoctor.injection import injected
from perfdoctor.injection.bootstrap import RAISED
from perfdoctor.processes import Ward, out_of_memory, resume, suspend
from perfdoctor.schema.fix import Change
from perfdoctor.schema.launch import Launch
from perfdoctor.trials.duet import enough
from perfdoctor.trials.player import KILLED, PlayerEnded
from perfdoctor.trials.tally import EVERY, STEPS, Tally

SLICE_S, LONGEST_SLICE_S = 1.0, 15.0
SLICE_STEPS = 8
"""In a slice, where steps take long."""
QUIET_S = 1.0
"""So long without a compilation, and steps made, a copy counts as steady."""
START_SHARE = 0.7
"""Of the time that is left: what the start of a pair may take."""
POLL_S = 0.02


class Copy:
    """One copy of the script; it runs until it is suspended."""

    def __init__(self, ward: Ward, launch: Launch, change: Change, function: str) -> None:
        self._ward = ward
        self._folder = ward.folder()
        self._steps, self._every = Tally(self._folder / STEPS), Tally(self._folder / EVERY)
        self.tells_steps = False
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
        with self._log.open("wb") as log:
            self._child = ward.spawn(
                [sys.executable, *launch.command],
                env=env,
                cwd=launch.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._began_ns: int | None = time.monotonic_ns()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if self._child in self._ward:
            self._ward.end(self._child)
        self._ward.discard(self._folder)

    @property
    def _log(self) -> Path:
        return self._folder / "log"

    @property
    def makes_steps(self) -> bool:
        """Whether the step is a function that the script itself has jitted."""
        return self._steps.calls > 0

    @property
    def compiles(self) -> int:
        """Programs compiled so far."""
        return self._steps.compiles

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
        raised = self._folder / RAISED
        lines = [line for line in self._log.read_text(errors="replace").splitlines() if line]
        lines += [raised.read_text()] if raised.exists() else []
        if exhausted := out_of_memory(lines):
            raise PlayerEnded(f"out of memory: {exhausted}")
        if self._child.returncode == KILLED:
            raise PlayerEnded("killed, as the kernel does when memory runs out")
        if self._child.returncode:
            raise PlayerEnded((lines or [f"ended with status {self._child.returncode}"])[-1])
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
        step_s = warm_up((one, other), until)
        slice_s = min(LONGEST_SLICE_S, max(SLICE_S, SLICE_STEPS * step_s))
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


def warm_up(copies: Sequence[Copy], until: float) -> float:
    """Let all start at the same time, until each is steady; the longest step, in seconds."""
    starting = list(copies)
    start = time.monotonic()
    limit = start + START_SHARE * (until - start)
    quiet = dict.fromkeys(copies, (start, 0, 0))
    while starting:
        time.sleep(POLL_S)
        for copy in list(starting):
            copy.check()
            now = time.monotonic()
            since, compiles, calls = quiet[copy]
            if copy.compiles != compiles or copy.tally.calls == 0:
                quiet[copy] = (now, copy.compiles, copy.tally.calls)
            elif now - since > QUIET_S and copy.tally.calls >= calls + 3:
                copy.suspend()
                starting.remove(copy)
        if time.monotonic() > limit:
            raise PlayerEnded("the budget ended before its gain could be measured")
    tell = all(copy.makes_steps for copy in copies)
    for copy in copies:
        copy.tells_steps = tell
    return max(step_s(copy) for copy in copies)


def step_s(copy: Copy) -> float:
    """The median time between the newest calls."""
    newest = copy.tally.since(copy.tally.calls - 20)
    gaps = sorted(after - before for before, after in pairwise(newest))
    return gaps[len(gaps) // 2] / 1e9 if gaps else 0.0
