"""Finds the Python function in which a program dispatches its step operation by operation.

The main thread's stack is looked at every few milliseconds. Of the program's own functions those
that are always the same call hold the loop; the outermost one that is called anew again and again
is the step, and how often it is seen to be new tells how long a call takes. A call is known again
by a mark in its frame, so that nothing of it is kept alive.
"""

import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from msgspec.structs import replace

from perfdoctor.observe.agent.beside import Beside, work_beside
from perfdoctor.observe.agent.frames import own_frames, undecorated
from perfdoctor.observe.agent.looks import (
    FEWEST_CALLS,
    LEAST_IN_JAX,
    Looks,
    eager_of,
    outermost_first,
    reads_of,
    short_steps_of,
    steps_of,
)
from perfdoctor.observe.agent.outline import Arguments, arguments_of
from perfdoctor.observe.agent.stacks import prompt_switches
from perfdoctor.observe.agent.threads import readings
from perfdoctor.schema.calls import MOSTLY, Eager

GAP_S, SHORT_GAP_S, LONGEST_GAP_S = 0.002, 0.0005, 0.05
"""Seconds from one look at the stack to the next: while it is not known how long calls take, where
they prove too short for that, and at most. Each look holds the program up, so calls are timed by as
few as tell them apart."""
TIMING_S = 1.5
"""Seconds for which calls are timed, if ENOUGH_CALLS are not seen before."""
FIRST_LOOK_S = 0.2
"""Seconds of a first series of looks."""
FEWEST_LOOKS = 12
"""Looks made while the observer waited for something else that are enough as a first series."""
ENOUGH_S, LONGEST_S = 1.0, 6.0
"""Seconds after which looks end that have seen ENOUGH_CALLS, and after which they end anyway."""
IF_KNOWN_S = 2.0
"""Seconds after which they end where jitted calls make a step, unless ENOUGH_CALLS take longer."""
ENOUGH_CALLS = 8
"""Calls of one function that are enough."""
TIMED_LOOKS = 2.5
"""Looks that a call lasts when it is timed."""
MOST_CANDIDATES = 3
"""Functions that are kept as candidates for the step."""


def note_call(*_: Any) -> None:
    """Is the mark of a frame; as a frame's trace function it does nothing."""


@dataclass(frozen=True)
class Candidate:
    """A function that may be the step, and what it was called with."""

    eager: Eager
    arguments: Arguments


class EagerWatch:
    """Looks at the main thread, and keeps what its step was called with."""

    def __init__(self, is_over: Callable[[float], bool], jax: Any = None) -> None:
        """`is_over`: waits for so many seconds; whether the program has ended. `jax`: None until
        the program has imported it.
        """
        self.candidates: list[Candidate] = []
        """Of the last look; the outermost first."""
        self.in_a_row = 0
        """Looks that found the same function."""
        self.jax, self._is_over = jax, is_over
        self._main = threading.main_thread().ident or 0
        self._kept: dict[CodeType, Arguments] = {}
        self._seen = Looks()
        self._dispatched = False

    @property
    def dispatches(self) -> bool:
        """Whether the program was seen to dispatch operations, so far."""
        seen = self._seen
        is_seen = seen.count >= FEWEST_LOOKS and seen.in_jax_share >= LEAST_IN_JAX
        return self._dispatched or is_seen

    def sample(self) -> None:
        """Look once, while the observer waits for something else."""
        with suppress(Exception):
            self._look_once(self._seen)

    def forget(self) -> None:
        """What was seen while the program was set up tells nothing about its steps."""
        self._seen = Looks()

    def look(self, *, early: bool = False, step_ms: float | None = None) -> None:
        """Take as long as it needs to see some calls, if the program dispatches operations.

        `early`: it may still be compiling what it will then call; that is no dispatching.
        `step_ms`: what a step of its jitted calls takes, if it makes some.
        """
        some_s = LONGEST_S if step_ms is None else ENOUGH_CALLS * step_ms / 1e3
        longest_s = min(LONGEST_S, max(IF_KNOWN_S, some_s))
        seen, self._seen = self._seen, Looks()
        if seen.count < FEWEST_LOOKS:
            seen = self._looks(GAP_S, FIRST_LOOK_S, FIRST_LOOK_S)
        if seen.count == 0:  # the program has ended: what was found before stands
            return
        computing = seen.count - seen.tracing if early else seen.count
        self._dispatched = min(seen.in_jax, computing) >= LEAST_IN_JAX * max(1, seen.count)
        if not self._dispatched:
            self._found([])
            return
        self._kept = {}
        looks = self._looks(GAP_S, ENOUGH_S, longest_s)
        if steps_of(looks) or not short_steps_of(looks):
            self._found(self._timed(looks, GAP_S))
        else:
            with prompt_switches():
                looks = self._looks(SHORT_GAP_S, ENOUGH_S, longest_s)
                self._found(self._timed(looks, SHORT_GAP_S))
        self._kept = {}

    def _timed(self, looks: Looks, least_gap_s: float) -> list[Candidate]:
        """The functions that may be the step, by first looks, and what a call of them takes."""
        found: list[Candidate] = []
        codes = [code for code in steps_of(looks) if code in self._kept][:MOST_CANDIDATES]
        if looks.in_jax_share >= LEAST_IN_JAX and codes:
            call_s = eager_of(codes[0], looks).call_ms / 1e3
            gap_s = min(LONGEST_GAP_S, max(least_gap_s, call_s / TIMED_LOOKS))
            before = readings()
            timed = self._looks(gap_s, TIMING_S, LONGEST_S)
            after = readings()
            reads = reads_of(looks, timed)
            for code in codes:
                is_timed = timed.anew[code] >= FEWEST_CALLS
                eager = replace(eager_of(code, timed if is_timed else looks), reads=reads)
                if is_timed:
                    beside = work_beside(before, after, self._main, {self._main}, timed.anew[code])
                    eager = with_work_beside(eager, beside)
                found.append(Candidate(eager, self._kept[code]))
        return found

    def _found(self, candidates: list[Candidate]) -> None:
        """In place of those of an earlier look, which may have lain in a set-up."""
        before = self.candidates[0].arguments.code if self.candidates else None
        now = candidates[0].arguments.code if candidates else None
        self.in_a_row = 0 if now is None else self.in_a_row + 1 if now is before else 1
        self.candidates = candidates

    def _looks(self, gap_s: float, seconds: float, longest_s: float) -> Looks:
        """For so long, and longer if the outermost function has not yet been called often."""
        looks, begun = Looks(), time.monotonic()
        while looks.passed_s < longest_s and not self._is_over(gap_s):
            self._look_once(looks)
            looks.passed_s = time.monotonic() - begun
            outermost = next(iter(outermost_first(looks, looks.anew)), None)
            enough = outermost is not None and looks.anew[outermost] >= ENOUGH_CALLS
            if looks.passed_s >= seconds and (enough or looks.in_jax_share < LEAST_IN_JAX):
                break
        return looks

    def _look_once(self, looks: Looks) -> None:
        frames = own_frames(sys._current_frames().get(self._main))
        looks.count += 1
        looks.in_jax += frames.in_operation
        looks.tracing += frames.is_tracing
        if frames.own and (frames.takes_element or frames.reads_value):
            inner = frames.own[-1]
            line = inner.f_code.co_qualname, inner.f_code.co_filename, inner.f_lineno
            looks.elements[line] += 1
            looks.reading[line] += frames.reads_value and not frames.takes_element
        seen: set[CodeType] = set()
        for depth, frame in enumerate(undecorated(frames.own)):
            code = frame.f_code
            if code not in seen:
                seen.add(code)
                looks.within[code] += 1
                looks.at_work[code] += frames.in_operation
                looks.depth[code] = min(depth, looks.depth.get(code, depth))
            if frame.f_trace is None:
                frame.f_trace = note_call
                if looks.count > 1:
                    looks.anew[code] += 1
                    self._keep(frame)

    def _keep(self, frame: FrameType) -> None:
        """Of a call that has just begun, what it was called with."""
        if frame.f_code in self._kept or frame.f_code.co_name.startswith("<"):
            return
        with suppress(Exception):  # arrays that are deleted, or traced
            kept = arguments_of(self.jax, frame)
            if kept is not None:
                self._kept[frame.f_code] = kept


def with_work_beside(eager: Eager, beside: Beside) -> Eager:
    """With what others work for each call. Where they take half a core all the time, they might do
    so whatever a call takes: then it is not known what they work for one.
    """
    if beside.threads_cpu_ms + beside.children_cpu_ms >= MOSTLY * eager.call_ms / eager.share:
        return eager
    return replace(
        eager,
        threads_cpu_ms=beside.threads_cpu_ms,
        children_cpu_ms=beside.children_cpu_ms,
        children=beside.children,
    )
