"""What other threads and processes of the program do beside the thread that makes the steps."""

import os
import threading
from collections.abc import Mapping, Set
from dataclasses import dataclass

from perfdoctor.observe.agent.threads import Reading
from perfdoctor.schema.calls import LITTLE

UNKNOWN = Reading({}, {}, {}, {})
"""Of a process that was not there."""


@dataclass(frozen=True)
class Worker:
    """A thread that Python has begun, and that makes no jitted calls; or a process."""

    process: int
    thread: int | None
    """As the kernel numbers it; None: all threads of a process."""
    name: str
    cpu_ms: float
    """Processor time a step."""


@dataclass(frozen=True)
class Beside:
    """Milliseconds a step."""

    delayed_ms: float = 0.0
    """How long the thread that makes the steps was ready to run, and had no core."""
    threads_cpu_ms: float = 0.0
    """Processor time of the other Python threads."""
    threads_delayed_ms: float = 0.0
    """How long these were ready to run, and had no core."""
    collecting_ms: float = 0.0
    """For how long they collected garbage."""
    children_cpu_ms: float = 0.0
    """Processor time of other processes of the program."""
    workers: tuple[Worker, ...] = ()

    @property
    def children(self) -> int:
        """How many other processes share their work: each a part of it that matters."""
        found = [each.cpu_ms for each in self.workers if each.thread is None]
        return sum(each >= LITTLE * max(found) for each in found)


def is_foreign(thread: threading.Thread) -> bool:
    """Whether a thread was not begun by Python but called it once: XLA's, that ran a callback."""
    return isinstance(thread, threading._DummyThread)


def begun_by_python() -> list[threading.Thread]:
    """The threads of Python itself."""
    return [each for each in threading.enumerate() if not is_foreign(each)]


def work_beside(
    before: Mapping[int, Reading],
    after: Mapping[int, Reading],
    caller: int,
    callers: Set[int],
    steps: float,
) -> Beside:
    """What the kernel told before and after so many steps.

    `caller`: the thread that makes them, as Python identifies it; `callers`: all that call jitted
    functions.
    """
    own = os.getpid()
    if own not in before or own not in after:
        return Beside()
    python = {each.native_id or 0: each for each in threading.enumerate()}
    calling = next((n for n, each in python.items() if each.ident == caller), 0)
    ours = threading.get_native_id()
    others = [n for n, each in python.items() if n not in (calling, ours) and not is_foreign(each)]
    changed = {pid: growth(before.get(pid, UNKNOWN), each) for pid, each in after.items()}
    in_threads, in_processes = changed.pop(own), changed
    per_step = 1e6 * steps
    workers = [
        Worker(own, n, python[n].name, in_threads.get(n, (0, 0))[0] / per_step)
        for n in others
        if python[n].ident not in callers
    ]
    workers += [
        Worker(pid, None, str(pid), sum(ran for ran, _ in threads.values()) / per_step)
        for pid, threads in in_processes.items()
    ]
    ran, wanted = in_threads.get(calling, (0, 0))
    of_others = [in_threads.get(n, (0, 0)) for n in others]
    return Beside(
        delayed_ms=(wanted - ran) / per_step,
        threads_cpu_ms=sum(ran for ran, _ in of_others) / per_step,
        threads_delayed_ms=sum(wanted - ran for ran, wanted in of_others) / per_step,
        children_cpu_ms=sum(each.cpu_ms for each in workers if each.thread is None),
        workers=tuple(each for each in workers if each.cpu_ms > 0),
    )


def growth(before: Reading, after: Reading) -> dict[int, tuple[int, int]]:
    """By thread of a process: nanoseconds on a core, and these with those in which it waited for
    one.
    """
    found = {}
    for n, ran_ns in after.ran_ns.items():
        ran = ran_ns - before.ran_ns.get(n, 0)
        found[n] = ran, ran + after.delayed_ns.get(n, 0) - before.delayed_ns.get(n, 0)
    return found
