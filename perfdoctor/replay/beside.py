"""Those who work beside a replayed step: threads and processes, for a while in each step or on and
on.
"""

import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import cycle
from queue import SimpleQueue

LEAST_MS = 0.01
"""Work of other threads and processes below it is not emulated."""
AHEAD = 2
"""Pieces of its work by which a thread is ahead of the one that waits for it: as many batches as a
loader mostly keeps ready."""
MOST_WORKERS = 4
"""Processes that share the loading: as many as are mostly asked for."""
WORKER = (
    "import os, sys, time\n"
    "work_ns = int(sys.argv[1])\n"
    "os.write(1, b'.')\n"
    "while os.read(0, 1):\n"
    "    end = time.thread_time_ns() + work_ns\n"
    "    while time.thread_time_ns() < end: pass\n"
    "    os.write(1, b'.')\n"
)
"""A process that works for a while for each byte that it is given, and answers with one; with one
more when it has begun."""
RESTLESS = "import os, sys\nwhile os.getppid() == int(sys.argv[1]): pass\n"
"""A process that never rests, and outlives nobody."""


def spin(work_ns: int) -> None:
    """Take so much processor time; what other threads take meanwhile does not count."""
    end = time.thread_time_ns() + work_ns
    while time.thread_time_ns() < end:
        pass


@dataclass(frozen=True)
class Beside:
    """Somebody who works for a while for each step."""

    tell: Callable[[], object]
    """That there is a step."""
    caught_up: Callable[[], None] = lambda: None
    """Waits until it has worked for all steps, if steps keep its pace."""


@contextmanager
def thread_beside(work_ms: float, *, sets_pace: bool = False) -> Iterator[Beside | None]:
    """Another thread, that works for so long for each step.

    `sets_pace`: whether a step waits while it is behind by `AHEAD` of them, as for a queue that it
    fills.
    """
    if work_ms < LEAST_MS:
        yield None
        return
    todo, room, over = threading.Semaphore(0), threading.Semaphore(AHEAD), threading.Event()

    def work() -> None:
        while todo.acquire() and not over.is_set():
            spin(round(work_ms * 1e6))
            room.release()

    def tell() -> None:
        room.acquire()
        todo.release()

    def caught_up() -> None:
        for _ in range(AHEAD):
            room.acquire()
        room.release(AHEAD)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield Beside(tell, caught_up) if sets_pace else Beside(todo.release)
    finally:
        over.set()
        todo.release()
        thread.join()


@contextmanager
def thread_awaited(pieces: Sequence[tuple[int, float]]) -> Iterator[Callable[[float], object]]:
    """How the calling thread sleeps: until the next piece of another thread's work is done, which
    goes round, and may be ahead by `AHEAD` pieces. Without pieces, for so many seconds.

    `pieces`: nanoseconds of the processor, and then seconds of sleep.
    """
    if not pieces:
        yield time.sleep
        return
    ready: SimpleQueue[None] = SimpleQueue()
    room: SimpleQueue[None] = SimpleQueue()
    begun, over = threading.Event(), threading.Event()

    def work() -> None:
        begun.wait()
        for work_ns, sleep_s in cycle(pieces):
            if over.is_set():
                return
            spin(work_ns)
            time.sleep(sleep_s)
            room.get()
            ready.put(None)

    def wait(_: float) -> None:
        begun.set()
        ready.get()
        room.put(None)

    for _ in range(AHEAD):
        room.put(None)
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield wait
    finally:
        over.set()
        begun.set()
        room.put(None)
        thread.join()


@contextmanager
def processes_beside(
    work_ms: float, *, set_pace: bool = False, count: int = 0
) -> Iterator[Beside | None]:
    """Another process, that works for so long for each step.

    `set_pace`: whether some share that work, and a step waits while each of them is behind by
    `AHEAD` steps; `count`: how many, 0: one for each core.
    """
    if work_ms < LEAST_MS:
        yield None
        return
    command = [sys.executable, "-S", "-c", WORKER, str(round(work_ms * 1e6))]
    sharing = min(MOST_WORKERS, count or len(os.sched_getaffinity(0))) if set_pace else 1
    with ExitStack() as stack:
        workers = [started(command, stack) for _ in range(sharing)]
        in_turn = cycle(workers)
        behind: deque[subprocess.Popen[bytes]] = deque()

        def tell() -> None:
            if len(behind) >= AHEAD * len(workers):
                answer_of(behind.popleft())
            worker = next(in_turn)
            assert worker.stdin is not None
            worker.stdin.write(b".")
            if set_pace:
                behind.append(worker)

        def caught_up() -> None:
            while behind:
                answer_of(behind.popleft())

        yield Beside(tell, caught_up)


def started(command: Sequence[str], stack: ExitStack) -> "subprocess.Popen[bytes]":
    """A worker that has begun; killed at the end of the stack."""
    pipe = subprocess.PIPE
    worker = stack.enter_context(subprocess.Popen(command, stdin=pipe, stdout=pipe, bufsize=0))
    stack.callback(worker.kill)
    answer_of(worker)
    return worker


def answer_of(worker: "subprocess.Popen[bytes]") -> None:
    """Wait for it; it has ended if there is none."""
    assert worker.stdout is not None
    worker.stdout.read(1)


@contextmanager
def restless_beside(count: int) -> Iterator[None]:
    """So many processes that never rest."""
    with ExitStack() as stack:
        for _ in range(count):
            command = [sys.executable, "-S", "-c", RESTLESS, str(os.getpid())]
            worker = stack.enter_context(subprocess.Popen(command, stdin=subprocess.DEVNULL))
            stack.callback(worker.kill)
        yield


@contextmanager
def restless_threads(count: int) -> Iterator[None]:
    """So many threads that never rest, and hold the interpreter for as long as it lets them."""
    over: list[bool] = []

    def work() -> None:
        while not over:
            pass

    threads = [threading.Thread(target=work, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.append(True)
        for thread in threads:
            thread.join()
