"""Follows an observed run from window to window, until enough was seen or the time is up."""

import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from perfdoctor import protocol
from perfdoctor.files import write_whole
from perfdoctor.observe import load
from perfdoctor.observe.gpu import gpus
from perfdoctor.observe.in_turn import InTurn, Running, takes_turns
from perfdoctor.observe.reading import READING_S, digested, read_recording
from perfdoctor.process_tree import tree
from perfdoctor.processes import ProcessGroups
from perfdoctor.protocol import (
    AGAIN,
    CLOSED,
    LEFT,
    OPENED,
    RECORDED,
    RECORDING,
    STOP,
)
from perfdoctor.schema.capture import WHOLE_BEGUN
from perfdoctor.schema.digest import Digest
from perfdoctor.schema.surroundings import Gpu, Load

WINDOW_S = 2.0
"""Traced: enough for a hundred steps of 20 ms. Writing and reading a second of a dense program's
trace takes a second more, beside the program: more would cost it over 2 % of a minute."""
LEAVE_S = 5.0
"""What a run may take to leave once it was asked to: one that is stopped in the middle of a
compilation sometimes hangs or crashes in XLA, observed or not."""
WHOLE_S = 10.0
"""Longer, that tracing the function may take in which it dispatches its operations."""
POLL_S = 0.02
"""Seconds between two looks at the run."""
GLANCE_S = 0.25
"""Seconds between two glances at what others take: 25 ticks of the kernel's clock on each core."""


class Within(NamedTuple):
    """The time that an observed run has."""

    limit_s: float
    longest_s: float
    """Where it makes no step within the limit, since it compiles, or loads what it needs; and where
    what was recorded takes long to be read."""

    @classmethod
    def at_most(cls, limit_s: float) -> "Within":
        """No longer, whatever it does."""
        return cls(limit_s, limit_s)

    def less(self, spent_s: float) -> "Within":
        """What is left of it, a second at least."""
        return Within(*(max(1.0, each - spent_s) for each in self))


def orders_within(within_s: Within) -> dict[str, float]:
    """How long a window is, and how long the run may take to become steady, and to be set up, so
    that its windows can be traced and read in time.
    """
    steady_s, set_up_s = (max(0.0, each - 2 * WINDOW_S - READING_S) for each in within_s)
    return {"window_s": WINDOW_S, "steady_within_s": steady_s, "set_up_within_s": set_up_s}


class Following:
    """Follows a run from window to window, until enough was seen or the time is up."""

    def __init__(
        self,
        child: psutil.Popen,
        folder: Path,
        groups: ProcessGroups,
        within_s: Within,
        say: Callable[[str], None],
        capture_to: Path | None = None,
        in_turn: InTurn | None = None,
    ) -> None:
        """`within_s`: from now on. `in_turn`: is called once, when a window of it is recorded."""
        self.number = 0
        """Windows recorded and understood."""
        self.digest: Digest | None = None
        """What was understood of the last window."""
        self.load: Load | None = None
        self.gpus: tuple[Gpu, ...] | None = None
        self.asked = False
        """Whether it was we who ended the run."""
        self.rested_s = 0.0
        """Seconds in which we suspended the run."""
        self._child, self._folder, self._groups, self._say = child, folder, groups, say
        self._until, self._latest = (time.monotonic() + each for each in within_s)
        self._capture_to, self._in_turn = capture_to, in_turn
        self._before: load.Reading | None = None
        self._glances: list[load.Glance] = []
        self._processes: list[psutil.Process] = []
        """Of the run, when a window was opened."""

    def to_the_end(self) -> None:
        """Follow the run until it has ended, or does not although it was asked to."""
        while self._child.poll() is None:
            if self._measures_load():
                pass
            elif self._has(RECORDED):
                self._take_turns()
                self._read()
            elif time.monotonic() > self._until and not self._waits_longer():
                self._ask_to_stop()
            if self.asked:
                break
            time.sleep(POLL_S)
        with suppress(psutil.TimeoutExpired):
            self._child.wait(LEAVE_S)
        until = time.monotonic() + WHOLE_S
        while self._traces_a_whole() and self._child.poll() is None and time.monotonic() < until:
            time.sleep(POLL_S)
        with suppress(psutil.TimeoutExpired):
            self._child.wait(POLL_S)

    def _waits_longer(self) -> bool:
        """Whether the run has more time, since no window was opened; it is given it once."""
        if self._until == self._latest or self.number or self._has(OPENED):
            return False
        is_known = (self._folder / RECORDING).exists()
        seen = "no step was traced" if is_known else "no step"
        self._say(f"observing the run: {seen} so far, waiting longer")
        self._until = self._latest
        return True

    def _traces_a_whole(self) -> bool:
        """Whether the program is kept from leaving by us."""
        return self._capture_to is not None and (self._capture_to / WHOLE_BEGUN).exists()

    def read_the_rest(self) -> None:
        """What was recorded when the run ended by itself, before we could understand it."""
        recorded = (self._folder / RECORDING).exists()
        if recorded and (self.number == 0 or self._has(RECORDED)):
            self._say("reading the trace")
            newest = digested(self._folder, self._groups, self._latest)
            if self.digest is None or tells_more(newest, self.digest):
                self.digest = newest

    def _has(self, name: str) -> bool:
        return (self._folder / name.format(self.number + 1)).exists()

    def _measures_load(self) -> bool:
        """Load and accelerators from the begin of a window to its end."""
        if self._has(CLOSED):
            if self._before is not None:
                self.load = load.between(self._before, load.read(self._child), self._glances)
                self._before = None
            return False
        if self._before is None and self._has(OPENED):
            self._say(f"observing the run: {WINDOW_S:.0f} s of steps")
            self._before, self._processes = load.read(self._child), tree(self._child)
            self._glances = [load.glance(self._processes)]
            self.gpus = gpus(frozenset(process.pid for process in self._processes))
        elif self._before is not None:
            self._glance()
        return self._before is not None

    def _glance(self) -> None:
        """At what others take, if it is time for it."""
        if time.monotonic() >= self._glances[-1].instant + GLANCE_S:
            self._glances.append(load.glance(self._processes))

    def _read(self) -> None:
        """Understand a window, and decide whether it was enough."""
        self._say("reading the trace")
        self.digest = digested(self._folder, self._groups, self._latest)
        self.number += 1
        next_s = self.digest.next_window_s if self.digest else None
        left_s = self._until - time.monotonic() - READING_S
        if self._child.poll() is not None:
            return
        if next_s is None or left_s < WINDOW_S:
            self._ask_to_stop()
            return
        self._say("observing the run: too little was seen, looking longer")
        is_known = self.digest is not None and self.digest.is_step_known
        text = protocol.answer(min(next_s, left_s), is_step_known=is_known)
        write_whole(self._folder / AGAIN.format(self.number), text.encode())

    def _take_turns(self) -> None:
        """Have the program timed in turn with its replayed step, once, as long as time is left for
        another window; before its trace is read, for it may end soon.
        """
        in_turn, self._in_turn = self._in_turn, None
        until = self._until - WINDOW_S - READING_S
        is_time = time.monotonic() < until and not (self._folder / LEFT).exists()
        if in_turn is not None and is_time and takes_turns(read_recording(self._folder)):
            running = Running(self._child, self._folder, until)
            in_turn(running)
            self.rested_s = running.rested_s

    def _ask_to_stop(self) -> None:
        """Ask it to stop as Ctrl-C would: by the agent, which keeps the traceback to itself, if it
        is there.
        """
        self.asked = True
        (self._folder / STOP).touch()
        if not self._has(RECORDED) and self.number == 0:
            with suppress(psutil.Error):
                self._child.send_signal(signal.SIGINT)


def tells_more(newest: Digest | None, before: Digest) -> bool:
    """Whether what was understood last is to be kept: traced steps, or others where there were none
    traced before.
    """
    if newest is None or newest.steps is None:
        return False
    return newest.steps.is_traced or before.steps is None or not before.steps.is_traced
