"""What the program's steps take while fewer tasks of its thread pool run at a time.

Threads of a pool that outnumber the cores take these, and Python's interpreter, from each other and
from the step. So the running program is timed as it is, and in turn with that while a task of the
pool begins only when few others run: what the tasks compute, and their order, stay the same.
"""

import math
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import thread as pools
from types import TracebackType
from typing import Any, NamedTuple, Self

from perfdoctor.observe.agent.beside import Worker
from perfdoctor.schema.calls import MOSTLY, ThreadPool

CROWDED = 2
"""Threads for each core, with more of which a pool is looked at: pools of a few are usual, and to
look takes nine seconds of the run."""
ORDER = ((False, True), (True, False)) * 2
"""Of each pair of turns, whether fewer tasks run."""
FEWEST_PAIRS = 3
"""Pairs that are enough where the program ends meanwhile; fewer tell no interval."""
SETTLED_S = 0.3
"""Seconds that pass before steps are timed otherwise: what has begun before is to end."""
PATIENCE_S = 1.0
"""Seconds that a task waits for at most: it may be another one of the pool that needs it."""


class Crowd(NamedTuple):
    """A pool of Python's whose threads outnumber the cores, and take much of them."""

    queue: object
    """By which the pool is known."""
    name: str
    threads: int


def crowd_among(workers: Sequence[Worker], cores: int, step_ms: float) -> Crowd | None:
    """The largest such pool; None if there is none. `workers`: with their processor time a step,
    which takes `step_ms`.
    """
    took_ms = {each.thread: each.cpu_ms for each in workers if each.thread is not None}
    found: dict[int, list[threading.Thread]] = {}
    queues = dict(pools._threads_queues)
    for thread, queue in queues.items():
        if thread.native_id in took_ms:
            found.setdefault(id(queue), []).append(thread)
    largest = max(found.values(), key=len, default=[])
    in_all_ms = sum(took_ms[thread.native_id or 0] for thread in largest)
    if len(largest) <= CROWDED * cores or in_all_ms < MOSTLY * step_ms:
        return None
    first = largest[0]
    return Crowd(queues[first], first.name.rpartition("_")[0], len(largest))


def timed_with_fewer(
    crowd: Crowd,
    most: int,
    takes_ms: Callable[[], float | None],
    wait: Callable[[float], None],
) -> ThreadPool | None:
    """Times the steps with so many tasks at most at a time, and as they are; None if the program
    ends before that tells anything.

    `takes_ms`: what a step takes now; `wait`: lets so many seconds pass, or less if it ends.
    """
    log_ratios = []
    with Fewer(crowd.queue, most) as fewer:
        for pair in ORDER:
            taken_ms = {holds: fewer.timed(holds, takes_ms, wait) for holds in pair}
            as_it_is_ms, with_fewer_ms = taken_ms[False], taken_ms[True]
            if as_it_is_ms is None or with_fewer_ms is None:
                break
            log_ratios.append(math.log(as_it_is_ms / with_fewer_ms))
    if len(log_ratios) < FEWEST_PAIRS:
        return None
    return ThreadPool(
        name=crowd.name, threads=crowd.threads, at_a_time=most, log_ratios=tuple(log_ratios)
    )


class Fewer:
    """Within it, tasks of a pool can be held until less than so many others of it run."""

    def __init__(self, queue: object, most: int) -> None:
        """`queue`: the pool's."""
        self._queue, self._most = queue, most
        self._running, self._holds = 0, False
        self._changed = threading.Condition()

    def __enter__(self) -> Self:
        self._original = original = pools._WorkItem.run

        def run(item: Any, *context: Any) -> None:
            if pools._threads_queues.get(threading.current_thread()) is not self._queue:
                original(item, *context)
                return
            with self._changed:
                self._changed.wait_for(self._may_begin, PATIENCE_S)
                self._running += 1
            try:
                original(item, *context)
            finally:
                with self._changed:
                    self._running -= 1
                    self._changed.notify()

        pools._WorkItem.run = run  # type: ignore[method-assign, assignment]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        pools._WorkItem.run = self._original  # type: ignore[method-assign]
        self.hold(holds=False)

    def _may_begin(self) -> bool:
        return not self._holds or self._running < self._most

    def timed(
        self, holds: bool, takes_ms: Callable[[], float | None], wait: Callable[[float], None]
    ) -> float | None:
        """What a step takes while tasks are held, or while they are not."""
        if holds != self._holds:
            self.hold(holds)
            wait(SETTLED_S)
        return takes_ms()

    def hold(self, holds: bool) -> None:
        """Hold tasks from now on, or no longer."""
        with self._changed:
            self._holds = holds
            self._changed.notify_all()
