"""An observed program that still runs, timed in turn with something else.

Where machines share their cores with others, what a step takes changes by a half from one minute to
the next. Two things that are timed in turn are compared all the same.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from perfdoctor.process_tree import resume, suspend
from perfdoctor.protocol import TIMED, TURN
from perfdoctor.schema.recording import Recording

LONGEST_STEP_MS = 100.0
"""Steps that take longer are not timed in turn: only a few of them would be in one."""
ANSWER_S = 5.0
"""Seconds for which one turn's answer is waited for. A program that takes longer hardly lets the
agent run, or has called its step seconds ahead: it is not asked again."""
POLL_S = 0.05
"""Seconds between two looks at whether the program has answered."""


class Running:
    """The program; it computes on, whenever it is not at rest."""

    def __init__(self, child: psutil.Popen, folder: Path, until: float) -> None:
        """`until`: instant of time.monotonic() by which all of it has to be over."""
        self.until = until
        self.rested_s = 0.0
        """Seconds that it has been at rest for, in all."""
        self._child, self._folder, self._turns = child, folder, 0

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """It is suspended, with all processes that it has."""
        began = time.monotonic()
        try:
            suspend(self._child)
            yield
        finally:
            resume(self._child)
            self.rested_s += time.monotonic() - began

    def step_ms(self) -> float | None:
        """What a step takes now; None if it makes none, does not answer in time, or has ended."""
        self._turns += 1
        (self._folder / TURN.format(self._turns)).touch()
        answer = self._folder / TIMED.format(self._turns)
        until = min(self.until, time.monotonic() + ANSWER_S)
        while self._child.poll() is None and time.monotonic() < until:
            if answer.exists():
                text = answer.read_text()
                return float(text) if text else None
            time.sleep(POLL_S)
        return None


InTurn = Callable[[Running], None]
"""Times something in turn with a program."""


def takes_turns(recording: Recording | None) -> bool:
    """Whether steps of a program can be timed in turn with its captured step: one thread makes
    them, they take about as long each time, and the machine has room for both at once; which an
    accelerator has not, of whose memory a program takes most.
    """
    calls = recording.step_calls if recording is not None else None
    if recording is None or calls is None or recording.capture_failure is not None:
        return False
    is_usual = calls.threads == 1 and not calls.is_asked and not calls.compilations
    has_room = recording.platform == "cpu" and recording.available_bytes > recording.rss_bytes
    return is_usual and has_room and calls.time_ms <= LONGEST_STEP_MS
