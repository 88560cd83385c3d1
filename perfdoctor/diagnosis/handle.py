"""What `perfdoctor.diagnose()` returns: a diagnosis that is made beside the loop."""

import atexit
import contextvars
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Literal, Self

import msgspec

from perfdoctor.diagnosis.course import Course, Wish, report_of, unseen
from perfdoctor.diagnosis.shown import Cell, Shown, Terminal, as_html, screen, shown
from perfdoctor.files import write_whole
from perfdoctor.injection.reach import Unreachable
from perfdoctor.observe.agent.watch import Watcher
from perfdoctor.processes import ProcessGroups
from perfdoctor.schema.errors import UsageError
from perfdoctor.schema.fix import MIN_GAIN
from perfdoctor.schema.observation import Observation
from perfdoctor.schema.report import Report

LEAVE_S = 5.0
"""How long an end is waited for: children are ended meanwhile."""
ONE_AT_A_TIME = threading.Lock()


def diagnose(
    budget_s: float = 120.0, min_gain: float = MIN_GAIN, *, show: bool = True
) -> "Diagnosis":
    """Examine the loop that calls this, or that runs in the `with` block, while it goes on.

    For some seconds its jitted calls are heard, probed and traced; then a step is replayed in a
    child process, beside which the loop rests for half of the time, some tenths of a second at
    once.

    Args:
        budget_s: seconds after which all ends.
        min_gain: the smallest gain that makes a finding: 0.05 is 5 %.
        show: whether the report is shown when it is ready: in the notebook's cell, or on stderr.

    It never raises: what goes wrong is told by the report.
    """
    return Diagnosis(budget_s, min_gain, show=show)


class Diagnosis:
    """A diagnosis, made in a thread of its own; done at the latest when its budget ends."""

    def __init__(self, budget_s: float, min_gain: float, *, show: bool) -> None:
        self._wish = Wish(budget_s, min_gain, program_name())
        self._ready = threading.Event()
        self._groups = ProcessGroups()
        self._course: Course | None = None
        self._process = os.getpid()
        self._observation: Observation | None = None
        self._report: Report | None = None
        self._screen: Terminal | Cell | None = None
        self._has_turn = False
        try:
            self._screen = screen() if show else None
            self._begin()
        except Exception as error:
            self._give_up(f"the loop can't be examined: {in_one_line(error)}")
            self._close()
            self._show()
            self._ready.set()

    def _begin(self) -> None:
        jax = sys.modules.get("jax")
        if jax is None:
            raise Unreachable("jax is not imported yet; call diagnose() after `import jax`")
        if any(isinstance(each, Watcher) for each in threading.enumerate()):
            raise Unreachable("it is being examined already")
        self._has_turn = ONE_AT_A_TIME.acquire(blocking=False)
        if not self._has_turn:
            raise Unreachable("another diagnosis is not done yet")
        self._course = Course(jax, self._groups, self._wish)
        self._course.recorder.attach(jax)
        atexit.register(self.cancel)
        context = contextvars.copy_context()  # a notebook's output goes to the cell that asked
        self._thread = threading.Thread(
            target=context.run, args=(self._run, self._course), name="perfdoctor", daemon=True
        )
        self._thread.start()

    def _run(self, course: Course) -> None:
        try:
            seen = course.observed(self._say)
            self._observation = seen
            if seen.steps is not None or seen.calls is not None:
                self._observation = course.tried(seen, self._say)
            self._report = report_of(self._observation, self._wish.min_gain)
        except Exception as error:
            self._give_up(f"the diagnosis was broken off: {in_one_line(error)}")
        finally:
            self._close()
            self._show()
            self._ready.set()

    def _give_up(self, why: str) -> None:
        """The report says so; what was seen before is kept."""
        with suppress(Exception):
            seen = self._observation or unseen(self._wish.name, why)
            missing = seen.not_measured | {"alone": why}
            self._observation = msgspec.structs.replace(seen, not_measured=missing)
            self._report = report_of(self._observation, self._wish.min_gain)

    def _close(self) -> None:
        with suppress(Exception):
            self._groups.close()
        atexit.unregister(self.cancel)
        if self._has_turn:
            self._has_turn = False
            ONE_AT_A_TIME.release()

    def _say(self, text: str) -> None:
        if self._screen is not None:
            with suppress(Exception):
                self._screen.say(text)

    def _show(self) -> None:
        if self._screen is not None and self._report is not None:
            with suppress(Exception):
                self._screen.show(self._report)

    @property
    def done(self) -> bool:
        """Whether the report is there, and was shown."""
        return self._ready.is_set()

    @property
    def has_seen_steps(self) -> bool:
        """Whether it is done, and came to something."""
        seen = self._observation if self.done else None
        return seen is not None and (seen.steps is not None or seen.calls is not None)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the report, as long as its budget lasts or so many seconds; whether it is there.

        The loop does not go on meanwhile, if it is in the thread that waits.
        """
        left_s = self._wish.budget_s + LEAVE_S
        if self._course is not None:
            left_s = max(0.0, self._course.began + left_s - time.monotonic())
        return self._ready.wait(left_s if timeout_s is None else timeout_s)

    def report(self) -> Shown:
        """The ranked report; waits for it."""
        self.wait()
        return Shown(self._report) if self._report is not None else shown(self.observation)

    @property
    def observation(self) -> Observation:
        """What was seen and tried; waits for it."""
        self.wait()
        return self._observation or unseen(self._wish.name, "the diagnosis is not done")

    def save(self, file: str | Path) -> None:
        """Save what was seen and tried, for `perfdoctor check FILE`; waits for it."""
        write_whole(Path(file), msgspec.json.encode(self.observation))

    def loop_ended(self) -> None:
        """The loop that is examined has ended: what was seen by now has to do."""
        if self._course is not None:
            self._course.loop_has_ended = True
            self._course.recorder.end()

    def cancel(self) -> None:
        """End it now, as the program's end does."""
        if self.done or os.getpid() != self._process:
            return
        self.loop_ended()
        with suppress(Exception):
            self._groups.close()
        self._thread.join(LEAVE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *why: object) -> Literal[False]:
        """Where the block has ended well, its report is waited for."""
        if kind is not None:
            self.cancel()
        else:
            self.loop_ended()
            self.wait()
        return False

    def __repr__(self) -> str:
        if not self.done or self._report is None:
            return "a diagnosis that is not done yet"
        return str(self.report())

    def _repr_html_(self) -> str:
        if not self.done or self._report is None:
            return f"<em>{self!r}</em>"
        return as_html(self._report)


def program_name() -> str:
    """Of what is examined."""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    return Path(file).name if file else "notebook"


def in_one_line(error: Exception) -> str:
    """An error of ours as part of a sentence."""
    text = " ".join(str(error).split())
    is_told = isinstance(error, Unreachable | UsageError)
    return text if is_told else f"{type(error).__name__}: {text}"
