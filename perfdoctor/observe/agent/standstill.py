"""Who works on while the program's step stands still.

What loads for the step rests once it is ahead; what does not would take the cores whatever the step
does. So the thread that makes the steps is held up once, and the others are looked at.
"""

import os
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

import psutil

from perfdoctor.injection.calls import OWN_FILES, Hearing
from perfdoctor.observe.agent.beside import UNKNOWN, Worker, growth
from perfdoctor.observe.agent.hold import Hold
from perfdoctor.observe.agent.patience import AHEAD_S
from perfdoctor.observe.agent.threads import Reading, readings
from perfdoctor.schema.calls import LITTLE, MOSTLY, Restless

OWN_FILES.add(__file__)
PATIENCE_S = 5.0
"""Seconds to wait for a call that can be held up."""
LOOKS, LOOK_S = 6, 0.25
"""Looks, of so many seconds each, in all of which those work that never rest: time enough to load
some batches ahead."""
OF_A_POOL = re.compile(r"multiprocessing|loky|forkserver")
"""What the commands hold of processes that take a part of a Python program's work."""
NAP_S = 1e-3
"""Seconds of the sleeps after which a thread would have the interpreter at once, if it was free."""


def at_standstill(
    jax: Any,
    hearing: Hearing,
    wait_for: Callable[[Callable[[], bool], float], None],
    workers: Sequence[Worker],
    step_ms: float,
) -> tuple[Restless, ...]:
    """Holds the program's next call up, if somebody works beside its steps, and sees who works on.

    `wait_for`: waits until a condition holds, for so many seconds at most.
    """
    if not is_worthwhile(workers, step_ms):
        return ()
    hold = hearing.hear = Hold(jax)
    try:
        wait_for(hold.held.is_set, PATIENCE_S)
        if hold.begun.is_set():
            wait_for(hold.held.is_set, AHEAD_S)
        return who_works_on(workers, step_ms) if hold.held.is_set() else ()
    finally:
        hearing.hear = None
        hold.over.set()


def is_worthwhile(workers: Sequence[Worker], step_ms: float) -> bool:
    """Whether those beside the step take something of the processor."""
    return sum(each.cpu_ms for each in workers) >= LITTLE * step_ms


def who_works_on(workers: Sequence[Worker], step_ms: float) -> tuple[Restless, ...]:
    """Those of the workers that work all the time, while the step stands still; none as soon as
    they rest. `step_ms`: what a step takes.
    """
    at_work, before = list(workers), readings()
    cores: dict[Worker, float] = {}
    lateness: list[float] = []
    helping = 0.0
    for _ in range(LOOKS):
        begin = time.monotonic()
        lateness += naps(LOOK_S)
        passed_ns, after = (time.monotonic() - begin) * 1e9, readings()
        wanted = {pid: wanted_ns(before.get(pid, UNKNOWN), each) for pid, each in after.items()}
        cores = {each: of_worker(each, wanted) / passed_ns for each in at_work}
        at_work = [each for each in at_work if cores[each] >= MOSTLY * each.cpu_ms / step_ms]
        if sum(cores[each] for each in at_work) < LITTLE:
            return ()
        helping = of_native_threads(wanted.get(os.getpid(), {})) / passed_ns
        before = after
    threads = sum(each.thread is not None for each in at_work)
    is_held = median(lateness) >= MOSTLY * sys.getswitchinterval()
    return tuple(
        Restless(
            name=name_of(each),
            is_process=each.thread is None,
            cpu_ms=each.cpu_ms,
            cores=cores[each] + (helping / threads if each.thread is not None else 0.0),
            is_program=each.thread is None and runs_another_program(each.process),
            holds_interpreter=is_held and each.thread is not None,
        )
        for each in at_work
    )


def naps(seconds: float) -> list[float]:
    """Sleeps for so long, in short ones; the seconds that each of these took too long."""
    lateness, until = [], time.monotonic() + seconds
    while (begin := time.monotonic()) < until:
        time.sleep(NAP_S)
        lateness.append(time.monotonic() - begin - NAP_S)
    return lateness


def wanted_ns(before: Reading, after: Reading) -> dict[int, int]:
    """By thread of a process: nanoseconds in which it ran, or waited for a core."""
    return {n: wanted for n, (_, wanted) in growth(before, after).items()}


def of_worker(worker: Worker, wanted: Mapping[int, Mapping[int, int]]) -> int:
    """Of all threads of a process, or of one thread."""
    threads = wanted.get(worker.process, {})
    return sum(threads.values()) if worker.thread is None else threads.get(worker.thread, 0)


def of_native_threads(wanted: Mapping[int, int]) -> int:
    """Of the threads of this process that Python has not begun: BLAS's, which work for others."""
    known = {each.native_id for each in threading.enumerate()}
    return sum(each for n, each in wanted.items() if n not in known)


def busiest_of(workers: Sequence[Worker]) -> str:
    """The name of the one that takes the most of the processor; empty if there are none."""
    busiest = max(workers, key=lambda each: each.cpu_ms, default=None)
    return name_of(busiest) if busiest is not None else ""


def name_of(worker: Worker) -> str:
    """A thread's, as Python knows it; a process's command, and its number."""
    if worker.thread is not None:
        return worker.name
    try:
        return f"{psutil.Process(worker.process).name()} {worker.process}"
    except psutil.Error:  # it has ended
        return worker.name


def runs_another_program(pid: int) -> bool:
    """Whether a process is neither a fork of this one nor one of a pool of workers."""
    try:
        command = psutil.Process(pid).cmdline()
    except psutil.Error:  # it has ended
        return False
    is_ours = command == psutil.Process().cmdline() or OF_A_POOL.search(" ".join(command))
    return bool(command) and not is_ours
