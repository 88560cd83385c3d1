"""Traces a window of the run, and samples the main thread's stack and memory meanwhile."""

import os
import shutil
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from perfdoctor.injection.calls import Hearing
from perfdoctor.kernel import let_other_threads_go_first
from perfdoctor.observe.agent.devices import devices
from perfdoctor.observe.agent.executables import executables
from perfdoctor.observe.agent.garbage import note_heap
from perfdoctor.observe.agent.memory import (
    MemoryWatch,
    device_memory,
    give_back_freed,
    memory_left_bytes,
    resident_bytes,
    swapped_bytes,
)
from perfdoctor.observe.agent.memory_looks import MemoryLooks
from perfdoctor.observe.agent.process import cpu_s, own_folders
from perfdoctor.observe.agent.profiler import Profiler
from perfdoctor.observe.agent.settings import settings
from perfdoctor.observe.agent.stacks import StackSampler, prompt_switches
from perfdoctor.observe.agent.threads import ThreadWatch
from perfdoctor.observe.agent.trace_budget import SHORTEST_S, TraceBudget
from perfdoctor.observe.agent.turns import Answer, between_calls
from perfdoctor.protocol import CLOSED, EXECUTABLES, OPENED, TRACE
from perfdoctor.schema.recording import Recording, Window

SAMPLE_EVERY_S = 0.005
"""Seconds from one sample of the stack to the next."""
WINDOW_STEPS, LONGEST_WINDOW_S = 8, 12.0
"""Steps that a window is to hold, where these take long, as far as it gets no longer than so many
seconds."""
LONGER_S = 1.0
"""Seconds for which memory is looked at after a window that was too short for that, at most."""
SLOWED = 3.0
"""The factor by which a trace of many events may make steps longer (1 to 4.3 in the fourth round of
tests/clinic/fresh)."""


class WindowTracer:
    """Traces windows of one program; what it learns goes to the recording and to files."""

    def __init__(
        self,
        jax: Any,
        folder: Path,
        recording: Recording,
        profiler: Profiler,
        hearing: Hearing,
        ended: threading.Event,
    ) -> None:
        """`hearing`: of the program's jitted calls; `ended`: set once the program has ended."""
        self._jax, self._folder, self._recording = jax, folder, recording
        self._profiler, self._hearing, self._ended = profiler, hearing, ended
        self._memory, self._threads = MemoryWatch(), ThreadWatch()
        self.stacks = StackSampler()

    def trace(
        self, number: int, window_s: float, *, steady: bool, usual: bool, step_ms: float | None
    ) -> bool:
        """The n-th window; False if the program traces itself. `steady`: whether compilation has
        come to rest before; `usual`: whether the window has the usual length; `step_ms`: what a
        step takes, if that is known.
        """
        for folder in (TRACE, EXECUTABLES):  # of the window before
            shutil.rmtree(self._folder / folder, ignore_errors=True)
        self._memory, self.stacks = MemoryWatch(), StackSampler()
        self._note_surroundings()
        if not self._in_turn(partial(self._profiler.start, self._folder / TRACE)):
            return False
        start_ns, start_cpu_s = time.time_ns(), cpu_s()
        (self._folder / OPENED.format(number)).touch()
        self._threads.begin()
        looks = MemoryLooks(self._memory, self._jax, round(window_s * 1e9))
        with prompt_switches():
            self._sample(looks, start_ns, round(window_s * 1e9), usual=usual, step_ms=step_ms)
        end_ns, end_cpu_s = time.time_ns(), cpu_s()
        self._recording.threads = self._threads.end((end_ns - start_ns) / 1e9)
        (self._folder / CLOSED.format(number)).touch()
        self._write_trace()
        self._look_longer(looks, start_ns)
        self._recording.window = Window(
            start_ns=start_ns, end_ns=end_ns, cpu_s=end_cpu_s - start_cpu_s, steady=steady
        )
        self._note_state()
        return True

    def _in_turn(self, action: Callable[[], Answer]) -> Answer:
        """On an accelerator, the profiler is begun and ended while no jitted call is made."""
        return action() if on_cpu(self._jax) else between_calls(self._hearing, action)

    def _write_trace(self) -> None:
        """Write the trace, in a thread that comes after those of the program; ours samples them
        again later.
        """

        def write() -> None:
            let_other_threads_go_first()
            self._in_turn(self._profiler.stop)

        writer = threading.Thread(target=write, name="perfdoctor", daemon=True)
        try:
            writer.start()
        except RuntimeError:  # since Python 3.12, when the program is about to end
            self._profiler.stop()
        else:
            writer.join()
        give_back_freed()

    def _sample(
        self,
        looks: MemoryLooks,
        start_ns: int,
        window_ns: int,
        *,
        usual: bool,
        step_ms: float | None,
    ) -> None:
        """Sample the main thread's stack all through the window, and memory now and then."""
        available_bytes = self._recording.available_bytes
        budget = TraceBudget(
            self._memory,
            available_bytes,
            usual=usual,
            on_cpu=on_cpu(self._jax),
            enough_s=SHORTEST_S if step_ms is None else SLOWED * WINDOW_STEPS * step_ms / 1e3,
        )
        while (passed_ns := time.time_ns() - start_ns) < window_ns:
            if self._ended.wait(SAMPLE_EVERY_S) or not self._profiler.tracing:
                return
            self.stacks.sample()
            looks.after(passed_ns)
            if budget.is_spent(passed_ns / 1e9):
                return

    def _look_longer(self, looks: MemoryLooks, start_ns: int) -> None:
        """Look at memory on, while nothing is traced, if the window ended too early to tell what
        piles up.
        """
        until = time.monotonic() + LONGER_S
        while not looks.are_enough and time.monotonic() < until:
            if self._ended.wait(SAMPLE_EVERY_S):
                return
            looks.after(time.time_ns() - start_ns)

    def _note_surroundings(self) -> None:
        """Note where it computes, and what memory there is before the window is opened: the trace
        itself takes hundreds of megabytes.
        """
        recording = self._recording
        recording.platform = self._jax.default_backend()
        recording.rss_bytes, recording.peak_rss_bytes = resident_bytes()
        recording.swapped_bytes = swapped_bytes()
        recording.available_bytes = memory_left_bytes()

    def _note_state(self) -> None:
        """Note what takes a while to ask for, after the window is closed."""
        jax, recording = self._jax, self._recording
        note_heap(recording)
        recording.settings = settings(jax)
        recording.devices = jax.local_device_count()
        recording.computes_on = devices(jax)
        recording.affinity_cores = len(os.sched_getaffinity(os.getpid()))
        recording.own = own_folders()
        recording.memory_samples = self._memory.samples
        recording.arrays = self._memory.arrays()
        recording.device_memory = device_memory(jax)
        try:
            recording.executables = executables(jax, self._folder / EXECUTABLES)
        except Exception as error:  # jaxlib's client is no stable interface
            recording.failures["executable"] = f"XLA's account can't be read: {error}"


def on_cpu(jax: Any) -> bool:
    """Only there traces are known to number runs, and to take the program's own memory."""
    return str(jax.default_backend()) == "cpu"


def with_enough_steps(window_s: float, step_ms: float | None) -> float:
    """The length of a window that holds some steps, in seconds, if it is known what they take."""
    if step_ms is None:
        return window_s
    return max(window_s, min(WINDOW_STEPS * step_ms / 1e3, LONGEST_WINDOW_S))
