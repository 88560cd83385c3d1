"""Adds up what the iterations of a loop take; from any number of threads."""

import threading
import time
from collections import deque
from contextvars import ContextVar
from dataclasses import dataclass, fields
from typing import Any

from perfdoctor.listener.batches import length_of

EVALUATING: ContextVar[frozenset[int]] = ContextVar("perfdoctor.evaluating", default=frozenset())
"""The clocks that the thread or task leaves alone just now, by their ids."""
KEPT = 4096
"""Iterations whose lengths are kept, the newest."""


@dataclass(slots=True)
class Sums:
    """Of some iterations. Nanoseconds."""

    iterations: int = 0
    etl_ns: int = 0
    idle_etl_ns: int = 0
    """Of waits at whose end the device had run out of work."""
    looks: int = 0
    """Waits of which it is known whether it had."""
    idle_looks: int = 0
    samples: int = 0
    sampled: int = 0
    """Iterations of which the number of examples is known."""
    evaluation_ns: int = 0
    passed_ns: int = 0
    """All of them together, evaluations left out."""
    gc_ns: int = 0

    def add(self, other: "Sums") -> None:
        """Those of other iterations."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


class Clock:
    """What is told at the end of each iteration, and at each batch."""

    __slots__ = (
        "__weakref__",
        "_arrived_ns",
        "_begin_ns",
        "_end_ns",
        "_left_out_ns",
        "_now",
        "iteration",
        "length",
        "lengths_ns",
        "lock",
        "score",
        "steps_ns",
    )

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.iteration = 0
        self.score: Any = None
        """Of the newest iteration."""
        self.length: int | None = None
        """Of the first batch; None: it has none that could be told."""
        self.lengths_ns: deque[int] = deque(maxlen=KEPT)
        self._now = Sums()
        self._begin_ns: int | None = None
        self._end_ns = 0
        """Of the newest iteration."""
        self._left_out_ns = 0
        """Of the iteration that goes on."""
        self.steps_ns: deque[int] = deque(maxlen=KEPT)
        """From a batch, at which the device had run out of work, until its score was computed."""
        self._arrived_ns: int | None = None
        """Of such a batch, if the newest was one."""

    def waited(self, begin_ns: int, batch: Any) -> None:
        """For a batch, until now."""
        end_ns = time.perf_counter_ns()
        left_alone = EVALUATING.get()
        if left_alone and id(self) in left_alone:
            return
        score, is_idle = self.score, False
        if score is not None:
            try:
                is_idle = score.is_ready()
            except Exception:  # a number of the host; or it was deleted meanwhile
                is_idle = not hasattr(score, "is_ready")
        with self.lock:
            now = self._now
            if self._begin_ns is None:
                self._begin_ns = self._end_ns = begin_ns
                self.length = length_of(batch)
            now.etl_ns += end_ns - begin_ns
            if score is not None:
                now.looks += 1
                if is_idle:
                    now.idle_looks += 1
                    now.idle_etl_ns += end_ns - begin_ns
            self._arrived_ns = end_ns if is_idle else None

    def evaluated(self, took_ns: int) -> None:
        """So long; it belongs to no iteration."""
        with self.lock:
            self._now.evaluation_ns += took_ns
            self._left_out_ns += took_ns

    def step(self, samples: int | None, score: Any) -> int:
        """An iteration has ended; its number, 0 if it belongs to none."""
        now_ns = time.perf_counter_ns()
        left_alone = EVALUATING.get()
        if left_alone and id(self) in left_alone:
            return 0
        with self.lock:
            self.score = score
            self.iteration += 1
            if self._begin_ns is None:  # when it began was not seen
                self._begin_ns = self._end_ns = now_ns
                return self.iteration
            now = self._now
            now.iterations += 1
            samples = samples or self.length
            if samples is not None:
                now.samples += samples
                now.sampled += 1
            self.lengths_ns.append(now_ns - self._end_ns - self._left_out_ns)
            self._end_ns, self._left_out_ns = now_ns, 0
            return self.iteration

    def taken(self, gc_ns: int, *, is_computed: bool) -> Sums:
        """The iterations since the last time that this was asked; they end now.

        `is_computed`: whether it is known that what the newest has dispatched is computed now.
        """
        with self.lock:
            now_ns = time.perf_counter_ns()
            if self._arrived_ns is not None and is_computed:
                self.steps_ns.append(now_ns - self._arrived_ns)
            found, self._now = self._now, Sums()
            begin_ns, self._begin_ns, self._end_ns = self._begin_ns, now_ns, now_ns
            found.passed_ns = now_ns - (begin_ns or now_ns) - found.evaluation_ns
            found.gc_ns = gc_ns
        return found
