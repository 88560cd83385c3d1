"""Samples the main thread's stack."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType

from perfdoctor.injection.calls import OWN_FILES
from perfdoctor.schema.recording import Frame

DEPTH = 30
"""Innermost frames kept of a stack."""
SWITCH_S = 0.001
"""While stacks are sampled: how long a thread goes on in Python after another one wants to."""


class StackSampler:
    """Collects stacks of the main thread; equal ones are kept once."""

    def __init__(self) -> None:
        self.samples: list[tuple[int, int]] = []
        self._main = threading.main_thread().ident
        self._numbers: dict[tuple[tuple[CodeType, int], ...], int] = {}

    def sample(self) -> None:
        """Add the stack of this moment."""
        frame: FrameType | None = sys._current_frames().get(self._main or 0)
        stack: list[tuple[CodeType, int]] = []
        while frame is not None and len(stack) < DEPTH:
            if frame.f_code.co_filename not in OWN_FILES:
                stack.append((frame.f_code, frame.f_lineno or 0))
            frame = frame.f_back
        number = self._numbers.setdefault(tuple(stack), len(self._numbers))
        self.samples.append((time.time_ns(), number))

    def stacks(self) -> list[list[Frame]]:
        """The distinct stacks, in the order of their numbers."""
        return [
            [(code.co_filename, line, code.co_qualname) for code, line in stack]
            for stack in self._numbers
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
