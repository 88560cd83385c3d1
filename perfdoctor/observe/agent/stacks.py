"""Samples the stacks of Python's threads: of the main one, and of a few that work beside it."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType

from perfdoctor.injection.calls import OWN_FILES
from perfdoctor.observe.agent.handed import HandedOver
from perfdoctor.schema.recording import Frame, SampledThread
from perfdoctor.schema.run import Handed

DEPTH = 30
"""Innermost frames kept of a stack."""
DEPTH_BESIDE = 12
"""Frames that are kept of threads beside the main one: four of them make a look 13 µs longer."""
SWITCH_S = 0.001
"""While stacks are sampled: how long a thread goes on in Python after another one wants to."""
MOST_OTHERS = 4
"""Threads beside the main one that are sampled: those that were seen first."""
OWN_NAME = "perfdoctor"
"""How the names of the observer's own threads begin."""


class Samples:
    """The stacks of one thread; equal ones are kept once."""

    def __init__(self, depth: int) -> None:
        self.instants: list[tuple[int, int]] = []
        self._depth = depth
        self._numbers: dict[tuple[tuple[CodeType, int], ...], int] = {}

    def add(self, frame: FrameType | None, now_ns: int) -> None:
        """The stack whose innermost frame this is; empty for a thread that is not there."""
        stack: list[tuple[CodeType, int]] = []
        while frame is not None and len(stack) < self._depth:
            if frame.f_code.co_filename not in OWN_FILES:
                stack.append((frame.f_code, frame.f_lineno or 0))
            frame = frame.f_back
        number = self._numbers.setdefault(tuple(stack), len(self._numbers))
        self.instants.append((now_ns, number))

    def stacks(self) -> list[list[Frame]]:
        """The distinct stacks, in the order of their numbers."""
        return [
            [(code.co_filename, line, code.co_qualname) for code, line in stack]
            for stack in self._numbers
        ]


class StackSampler:
    """Collects stacks of the main thread, and of those that are beside it."""

    def __init__(self) -> None:
        self._main = threading.main_thread().ident
        self._of_main = Samples(DEPTH)
        self._handed = HandedOver()
        self._others: dict[int, tuple[str, Samples]] = {}
        self._passed_over: set[int] = set()

    @property
    def samples(self) -> list[tuple[int, int]]:
        """The samples of the main thread: instants, and indices into `stacks`."""
        return self._of_main.instants

    def sample(self) -> None:
        """Add the stacks of this moment."""
        frames, now_ns = sys._current_frames(), time.time_ns()
        self._of_main.add(frames.get(self._main or 0), now_ns)
        self._handed.look(frames.get(self._main or 0))
        for thread in frames.keys() - self._passed_over - self._others.keys():
            self._meet(thread)
        for thread, (_, samples) in self._others.items():
            if thread in frames:
                samples.add(frames[thread], now_ns)
        frames.clear()  # the frame of this call is in it: it would hold itself, and what the others
        # hold, the arrays of a step say, until the collector comes

    def _meet(self, thread: int) -> None:
        """Sample a thread from now on, if it is one of the program and few are sampled yet."""
        name = next((each.name for each in threading.enumerate() if each.ident == thread), OWN_NAME)
        is_wanted = thread not in (self._main, threading.get_ident())
        if is_wanted and not name.startswith(OWN_NAME) and len(self._others) < MOST_OTHERS:
            self._others[thread] = (name, Samples(DEPTH_BESIDE))
        else:
            self._passed_over.add(thread)

    def stacks(self) -> list[list[Frame]]:
        """The distinct stacks of the main thread, in the order of their numbers."""
        return self._of_main.stacks()

    def handed(self) -> list[Handed]:
        """The large host arrays that the main thread hands over outside of jitted calls."""
        return self._handed.found(len(self.samples))

    def others(self) -> list[SampledThread]:
        """What the threads beside the main one did."""
        return [
            SampledThread(name=name, stacks=samples.stacks(), samples=samples.instants)
            for name, samples in self._others.values()
        ]


@contextmanager
def prompt_switches() -> Iterator[None]:
    """A main thread that runs Python lets the sampler in after SWITCH_S, not after 5 ms."""
    usual_s = sys.getswitchinterval()
    ours_s = min(SWITCH_S, usual_s)
    sys.setswitchinterval(ours_s)
    try:
        yield
    finally:
        if abs(sys.getswitchinterval() - ours_s) < ours_s / 10:  # the program did not set its own
            sys.setswitchinterval(usual_s)
