"""The watching thread in the observed process: waits until the run is steady, traces a window."""

import gc
import re
import resource
import shutil
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import psutil

from perfdoctor.observe.agent.compilation import CACHE_HIT, CACHE_MISS, CompilationWatch
from perfdoctor.observe.agent.executables import executables
from perfdoctor.observe.agent.garbage import GarbageWatch
from perfdoctor.observe.agent.memory import MemoryWatch, device_memory, memory_left_bytes, rss_bytes
from perfdoctor.observe.agent.settings import settings
from perfdoctor.observe.agent.stacks import StackSampler
from perfdoctor.observe.agent.threads import ThreadWatch, read_text
from perfdoctor.schema.recording import Recording, Window

SAMPLE_EVERY_S = 0.005
"""Inside the window."""
LOOK_EVERY_S = 0.05
"""Before it: how often to look whether compilation has come to rest."""
QUIET_S = 1.0
"""So long without a compilation the run counts as steady."""
RESTLESS_S = 10.0
"""So long a run that compiles one function again and again is given to come to rest."""
UNSTEADY_WINDOWS = 2
"""So many times the window, where compilations take their part of it."""
ATTEMPTS = 3
"""Windows traced at most, until one shows steps and no compilation."""
DISPATCH = b"PjitFunction("
TRACE_SHARE = 0.25
"""Of the memory that is left: a trace that has taken so much is ended early. On the CPU each small
operation is an event, and a second of them takes up to 0.9 GB (measured, jax 0.10.2)."""
MEMORY_SAMPLES = 5
"""Over the window."""


class Limits(msgspec.Struct, frozen=True):
    """How long the watcher waits and looks."""

    steady_within_s: float
    """Trace after so long even if the run still compiles."""
    window_s: float


class Watcher(threading.Thread):
    """Records one run of the program that shares this process."""

    def __init__(self, folder: Path, limits: Limits) -> None:
        super().__init__(name="perfdoctor", daemon=True)
        self.folder = folder
        self.limits = limits
        self.recording = Recording(start_ns=time.time_ns())
        self.garbage = GarbageWatch()
        self.compilation = CompilationWatch()
        self.stacks = StackSampler()
        self.memory = MemoryWatch()
        self.threads = ThreadWatch()
        self.asked_to_stop = False
        self._ended = threading.Event()
        self._written = False

    def run(self) -> None:
        """The course of an observation, from the first import to the request to stop."""
        jax = self._imported_jax()
        if jax is None:
            return
        for attempt in range(1, ATTEMPTS + 1):
            self._wait_until_steady()
            self._trace_window(jax, attempt)
            if self._ended.is_set() or self._late() or self._saw_steps():
                break
        self.write()
        if not self._ended.is_set():
            self._ask_to_stop()

    def _ask_to_stop(self) -> None:
        """As Ctrl-C would; sent to the main thread itself, so that it wakes from a lock."""
        self.asked_to_stop = True
        main = threading.main_thread().ident
        if main is not None:
            signal.pthread_kill(main, signal.SIGINT)

    def finish(self) -> None:
        """Called in the main thread when the program has ended: stop, and leave the recording."""
        self._ended.set()
        self.join()
        if not self._written:
            self.write()

    def write(self) -> None:
        """Write what is known by now; beside and renamed, so that no reader sees half of it."""
        recording = self.recording
        recording.stacks = self.stacks.stacks()
        recording.samples = self.stacks.samples
        recording.compiles = self.compilation.events
        recording.reasons = self.compilation.reasons
        recording.collections = self.garbage.with_sources()
        beside = self.folder / "recording.json.part"
        beside.write_bytes(msgspec.json.encode(recording))
        beside.rename(self.folder / "recording.json")
        self._written = True

    def _imported_jax(self) -> Any:
        """jax, as soon as the program has imported it; it is never imported by us."""
        while (jax := sys.modules.get("jax")) is None or not hasattr(jax, "monitoring"):
            if self._ended.wait(SAMPLE_EVERY_S):
                return None
        self.compilation.install(jax)
        while not hasattr(jax, "profiler") or getattr(jax.__spec__, "_initializing", False):
            if self._ended.wait(SAMPLE_EVERY_S):
                return None
        self.compilation.explain(jax)
        return jax

    def _wait_until_steady(self) -> None:
        by_ns = self.recording.start_ns + round(self.limits.steady_within_s * 1e9)
        while not self._steady() and time.time_ns() < by_ns and not self._ended.wait(LOOK_EVERY_S):
            if self._restless():
                return

    def _late(self) -> bool:
        return time.time_ns() > self.recording.start_ns + self.limits.steady_within_s * 1e9

    def _saw_steps(self) -> bool:
        """Whether the window lies in the training: a set-up may rest before the first step."""
        window = self.recording.window
        traces = (self.folder / "trace").rglob("*.xplane.pb")
        if window is None or not any(DISPATCH in trace.read_bytes() for trace in traces):
            return False
        ends_ns = [event.end_ns for event in self.compilation.events]
        compiled = any(window.start_ns <= end_ns <= window.end_ns for end_ns in ends_ns)
        return not compiled or self.compilation.never_rests()

    def _steady(self) -> bool:
        return self.compilation.quiet_for_s() > QUIET_S

    def _restless(self) -> bool:
        events = self.compilation.events
        if not events or time.time_ns() - events[0].end_ns < RESTLESS_S * 1e9:
            return False
        return self.compilation.never_rests()

    def _trace_window(self, jax: Any, attempt: int) -> None:
        if self._ended.is_set():
            return
        for folder in ("trace", "executables"):  # of an attempt before
            shutil.rmtree(self.folder / folder, ignore_errors=True)
        self.memory = MemoryWatch()
        steady = self._steady()
        window_s = self.limits.window_s * (1 if steady else UNSTEADY_WINDOWS)
        options = jax.profiler.ProfileOptions()
        options.host_tracer_level, options.python_tracer_level = 1, 0
        process = psutil.Process()
        self._note_memory(process)
        jax.profiler.start_trace(str(self.folder / "trace"), profiler_options=options)
        start_ns, start_cpu_s = time.time_ns(), cpu_s(process)
        (self.folder / f"window-open-{attempt}").touch()
        self.threads.begin()
        self._sample(jax, start_ns, round(window_s * 1e9))
        end_ns, end_cpu_s = time.time_ns(), cpu_s(process)
        self.recording.threads = self.threads.end((end_ns - start_ns) / 1e9)
        (self.folder / f"window-closed-{attempt}").touch()
        jax.profiler.stop_trace()
        self.recording.window = Window(
            start_ns=start_ns, end_ns=end_ns, cpu_s=end_cpu_s - start_cpu_s, steady=steady
        )
        self._note_state(jax)

    def _note_memory(self, process: psutil.Process) -> None:
        """Before the window is opened: the trace itself takes hundreds of megabytes."""
        recording = self.recording
        recording.rss_bytes, recording.peak_rss_bytes = resident_bytes(process)
        recording.swapped_bytes = swapped_bytes(process)
        recording.available_bytes = memory_left_bytes()

    def _note_state(self, jax: Any) -> None:
        """After the window is closed: what takes a while to ask for."""
        recording = self.recording
        recording.live_objects = len(gc.get_objects())
        recording.frozen_objects = gc.get_freeze_count()
        recording.gc_thresholds = gc.get_threshold()
        recording.settings = settings(jax)
        recording.devices = jax.local_device_count()
        recording.cache_hits = self.compilation.cache[CACHE_HIT]
        recording.cache_misses = self.compilation.cache[CACHE_MISS]
        recording.memory_samples = self.memory.samples
        recording.arrays = self.memory.arrays()
        recording.device_memory = device_memory(jax)
        try:
            recording.executables = executables(jax, self.folder / "executables")
        except Exception as error:  # jaxlib's client is no stable interface
            recording.failures["executable"] = f"XLA's account can't be read: {error}"

    def _sample(self, jax: Any, start_ns: int, window_ns: int) -> None:
        """Sample the main thread's stack all through the window, and memory now and then."""
        due_ns = 0
        room_bytes = TRACE_SHARE * self.recording.available_bytes
        while (passed_ns := time.time_ns() - start_ns) < window_ns:
            if self._ended.wait(SAMPLE_EVERY_S):
                return
            self.stacks.sample()
            if passed_ns >= due_ns:
                self.memory.sample(jax, passed_ns / 1e9)
                due_ns += window_ns // MEMORY_SAMPLES
                if rss_bytes() > self.recording.rss_bytes + room_bytes:
                    return


def cpu_s(process: psutil.Process) -> float:
    """CPU time of a process and its descendants so far."""
    total = 0.0
    for member in [process, *process.children(recursive=True)]:
        try:
            times = member.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system
    return total


def swapped_bytes(process: psutil.Process) -> int:
    """Memory of the process tree that was moved to swap; 0 where the kernel does not say."""
    total = 0
    for member in [process, *process.children(recursive=True)]:
        found = re.search(r"VmSwap:\s+(\d+) kB", read_text(Path(f"/proc/{member.pid}/status")))
        total += int(found[1]) * 1024 if found else 0
    return total


def resident_bytes(process: psutil.Process) -> tuple[int, int]:
    """Memory of the process tree now, and the highest that this process ever had."""
    now = 0
    for member in [process, *process.children(recursive=True)]:
        try:
            now += member.memory_info().rss
        except psutil.Error:
            continue
    return now, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
