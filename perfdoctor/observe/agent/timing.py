"""Listens to the jitted calls of the program for a second, to tell what a step takes."""

import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from perfdoctor.injection.calls import OWN_FILES, Function
from perfdoctor.observe.agent.arrays import copied
from perfdoctor.observe.agent.calls import LEAST_CALLS, is_tracing
from perfdoctor.observe.agent.form import kind_of

OWN_FILES.add(__file__)
FEWEST_TIMED, LONGEST_TIMED_S = 20, 6.0
"""Calls that are timed at least, and for how long at most, where these are LEAST_CALLS."""
MARK_CALLS, MARK_S = 8, 0.05
"""From one call of which it is told when it was computed to the next such one: calls at first,
where the program runs ahead, and seconds. It took some percent of steps of 1 ms to tell of each
eighth."""
MOST_COPIED_BYTES = 2**24
"""The largest array that is copied, in bytes."""


class Timed(NamedTuple):
    """A call, by monotonic nanoseconds."""

    thread: int
    function: Function
    begin_ns: int
    end_ns: int


@dataclass
class Mark:
    """A call of which it is to be told when it was computed."""

    calls: int
    """Made until then, it included."""
    function: str
    made_ns: int
    copy: Any
    """A copy of one of its results, which is computed when they are; None where it has none."""
    begins_anew: bool = False
    """Whether the calls before it are of no step."""
    computed_ns: int = 0

    def look(self, now_ns: int) -> bool:
        """Whether it is computed; not before `made_ns`, and by `now_ns`."""
        if not self.computed_ns and (self.copy is None or self.copy.is_ready()):
            self.computed_ns, self.copy = max(self.made_ns, now_ns), None
        return self.computed_ns != 0


class Timer:
    """Notes calls from one moment to another one, by which what they return was computed.

    The program may call long before. So of some calls a small result is copied, which takes place
    after them; the copy tells, and nobody waits for it but the observer.
    """

    def __init__(self, jax: Any, seconds: float, fewest: int = FEWEST_TIMED) -> None:
        """`fewest`: calls that are timed at least."""
        self.calls: list[Timed] = []
        self.begin_ns = self.end_ns = 0
        self._jax, self._seconds, self._fewest = jax, seconds, fewest
        self._marks: deque[Mark] = deque()
        self._newest: Mark | None = None
        self._first: Mark | None = None
        self._noted: Mark | None = None
        self._mark_calls = MARK_CALLS
        self._names: set[str] = set()
        self._others = 0
        """Calls of other functions than that of the newest mark since it was called last."""

    def __call__(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a call."""
        begin_ns = time.monotonic_ns()
        if self._newest is not None:
            self._newest.look(begin_ns)
        outputs = function.jitted(*args, **kwargs)
        self._made(function, outputs, begin_ns, time.monotonic_ns())
        return outputs

    def after(self, function: Function, outputs: Any) -> None:
        """A call has just been made, by someone else; when it began is not known."""
        now_ns = time.monotonic_ns()
        if self._newest is not None:
            self._newest.look(now_ns)
        self._made(function, outputs, now_ns, now_ns)

    def _made(self, function: Function, outputs: Any, begin_ns: int, end_ns: int) -> None:
        self.calls.append(Timed(threading.get_ident(), function, begin_ns, end_ns))
        begins_anew = self._is_gone(function)
        if (begins_anew or self._is_due(function, end_ns)) and not is_tracing():
            self._mark(function, outputs, end_ns, begins_anew=begins_anew)

    def is_told(self) -> bool:
        """Whether it is enough; waits for calls that are on their way, in the observer's thread."""
        while self._marks and not self.end_ns:
            mark = self._marks.popleft()
            if not mark.look(time.monotonic_ns()):
                with suppress(Exception):  # it is told to the program where that asks for results
                    self._jax.block_until_ready(mark.copy)
                mark.look(time.monotonic_ns())
            self._note(mark)
        return self.end_ns != 0

    def look(self) -> None:
        """See what is computed by now, and let its copies go; nobody waits."""
        now_ns = time.monotonic_ns()
        for mark in list(self._marks):
            mark.look(now_ns)

    def end(self) -> bool:
        """End with what was called by now, all of which is computed; whether that is enough."""
        told = self._told()
        if told is None:  # the program has called ahead of what was computed
            self.look()
            told = self._told()
        if told is None:
            return False
        first, last = told
        self.begin_ns, self.end_ns = first.computed_ns, last.computed_ns
        self.calls = self.calls[first.calls : last.calls]
        return True

    def _told(self) -> tuple[Mark, Mark] | None:
        """The first and the last mark of the steps of which it is known when it was computed; None
        if there are too few calls between them.
        """
        marks = list(self._marks)
        begin = max((n for n, each in enumerate(marks) if each.begins_anew), default=0)
        told = [each for each in marks[begin:] if each.computed_ns]
        if not told or told[-1].calls - told[0].calls < LEAST_CALLS:
            return None
        return told[0], told[-1]

    def _note(self, mark: Mark) -> None:
        before, self._noted = self._noted, mark
        if before is not None and are_close(before, mark):
            self._mark_calls *= 2
        if self._first is None or mark.begins_anew:
            self._first, self.begin_ns = mark, mark.computed_ns
            return
        passed_s = (mark.computed_ns - self._first.computed_ns) / 1e9
        calls = mark.calls - self._first.calls
        if (passed_s >= self._seconds and calls >= self._fewest) or (
            passed_s > LONGEST_TIMED_S and calls >= LEAST_CALLS
        ):
            self.end_ns = mark.computed_ns
            self.calls = self.calls[self._first.calls : mark.calls]

    def _is_due(self, function: Function, now_ns: int) -> bool:
        """Now and then, and more often where the program runs ahead; always at the same place of a
        step.
        """
        newest = self._newest
        if newest is None:
            return True
        if function.name != newest.function:
            return False
        runs_ahead = len(self.calls) - newest.calls >= self._mark_calls and not newest.computed_ns
        return runs_ahead or now_ns - newest.made_ns >= MARK_S * 1e9

    def _is_gone(self, function: Function) -> bool:
        """Note a call; whether the function that is marked is called no more: others were, so often
        that each of them had its turn twice. It was an evaluation, say, before the first step.
        """
        self._names.add(function.name)
        is_other = self._newest is not None and function.name != self._newest.function
        self._others = self._others + 1 if is_other else 0
        return self._others > 2 * len(self._names) + LEAST_CALLS

    def _mark(
        self, function: Function, outputs: Any, now_ns: int, *, begins_anew: bool = False
    ) -> None:
        copy = None
        with suppress(Exception):  # deleted by another thread, say
            copy = copy_of_smallest(self._jax, outputs)
        self._newest = Mark(len(self.calls), function.name, now_ns, copy, begins_anew)
        self._others = 0
        self._marks.append(self._newest)


def are_close(one: Mark, other: Mark) -> bool:
    """Whether one in two of them would do. When they were made tells it where the observer sees
    late that they were computed; and that, where many calls are made at once.
    """
    made_ns = other.made_ns - one.made_ns
    return max(made_ns, other.computed_ns - one.computed_ns) < MARK_S / 2 * 1e9


def copy_of_smallest(jax: Any, outputs: Any) -> Any:
    """A copy of the smallest array that a call returns, which is not computed before the others
    are; None if there are none. If all are large, they are waited for, rather than given more of
    the device's memory.
    """
    arrays = [each for each in jax.tree_util.tree_leaves(outputs) if kind_of(jax, each) == "device"]
    if not arrays:
        return None
    smallest = min(arrays, key=lambda each: int(each.nbytes))
    if smallest.nbytes > MOST_COPIED_BYTES:
        jax.block_until_ready(smallest)
        return None
    return copied(jax, smallest)
