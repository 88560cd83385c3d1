"""Who works on while the program's step stands still.

What loads for the step rests once it is ahead; what does not would take the cores whatever the step
does. So the thread that makes the steps is held up once, and the others are looked at.
"""

import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import psutil

from perfdoctor.injection.calls import OWN_FILES, Function
from perfdoctor.observe.agent.beside import UNKNOWN, Worker, growth, readings
from perfdoctor.observe.agent.calls import is_tracing
from perfdoctor.observe.agent.threads import Reading
from perfdoctor.schema.calls import LITTLE, MOSTLY, Restless

OWN_FILES.add(__file__)
LOOKS, LOOK_S = 6, 0.25
"""Looks, of so many seconds each, in all of which those work that never rest: time enough to load
some batches ahead."""
NAP_S = 1e-3
"""Seconds of the sleeps after which a thread would have the interpreter at once, if it was free."""


class Standstill:
    """Makes the program's calls; after one of them, its thread waits and looks."""

    def __init__(self, jax: Any, thread: int, workers: Sequence[Worker], step_ms: float) -> None:
        """`thread`: the one that makes the steps, of so many milliseconds."""
        self.found: tuple[Restless, ...] = ()
        self.done = threading.Event()
        self._jax, self._thread, self._step_ms = jax, thread, step_ms
        self._workers = [each for each in workers if each.cpu_ms > 0]

    @property
    def is_worthwhile(self) -> bool:
        """Whether the others take something of the processor."""
        return sum(each.cpu_ms for each in self._workers) >= LITTLE * self._step_ms

    def __call__(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a call; whatever goes wrong with us is no matter of the program."""
        outputs = function.jitted(*args, **kwargs)
        is_ours = threading.get_ident() == self._thread
        if is_ours and not self.done.is_set() and not is_tracing():
            try:
                self._jax.block_until_ready(outputs)  # else XLA works on, too
                self.found = self._look()
            except Exception:
                self.found = ()
            self.done.set()
        return outputs

    def _look(self) -> tuple[Restless, ...]:
        """Those that worked all the time; none as soon as they rest."""
        at_work, before = self._workers, readings()
        cores: dict[Worker, float] = {}
        lateness: list[float] = []
        helping = 0.0
        for _ in range(LOOKS):
            begin = time.monotonic()
            lateness += naps(LOOK_S)
            passed_ns, after = (time.monotonic() - begin) * 1e9, readings()
            wanted = {pid: wanted_ns(before.get(pid, UNKNOWN), each) for pid, each in after.items()}
            cores = {each: of_worker(each, wanted) / passed_ns for each in at_work}
            at_work = [each for each in at_work if cores[each] >= MOSTLY * self._usual(each)]
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
                holds_interpreter=is_held and each.thread is not None,
            )
            for each in at_work
        )

    def _usual(self, worker: Worker) -> float:
        """The cores that it has while steps are made."""
        return worker.cpu_ms / self._step_ms


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


def name_of(worker: Worker) -> str:
    """A thread's, as Python knows it; a process's command, and its number."""
    if worker.thread is not None:
        return worker.name
    try:
        return f"{psutil.Process(worker.process).name()} {worker.process}"
    except psutil.Error:  # it has ended
        return worker.name
