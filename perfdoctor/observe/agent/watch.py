"""The watching thread in the observed process: waits until the run is steady, traces a window."""

import _thread
import gc
import resource
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import psutil

from perfdoctor.observe.agent.compilation import CompilationWatch
from perfdoctor.observe.agent.garbage import GarbageWatch
from perfdoctor.observe.agent.settings import settings
from perfdoctor.observe.agent.stacks import StackSampler
from perfdoctor.schema.recording import Recording, Window

SAMPLE_EVERY_S = 0.005
"""Inside the window."""
LOOK_EVERY_S = 0.05
"""Before it: how often to look whether compilation has come to rest."""
QUIET_S = 1.0
"""So long without a compilation the run counts as steady."""


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
        self._ended = threading.Event()
        self._written = False

    def run(self) -> None:
        """The course of an observation, from the first import to the request to stop."""
        jax = self._imported_jax()
        if jax is None:
            return
        self._wait_until_steady()
        self._trace_window(jax)
        self.write()
        if not self._ended.is_set():
            _thread.interrupt_main()

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
            pass

    def _steady(self) -> bool:
        return self.compilation.quiet_for_s() > QUIET_S

    def _trace_window(self, jax: Any) -> None:
        if self._ended.is_set():
            return
        steady = self._steady()
        options = jax.profiler.ProfileOptions()
        options.host_tracer_level, options.python_tracer_level = 1, 0
        tree = psutil.Process()
        jax.profiler.start_trace(str(self.folder / "trace"), profiler_options=options)
        start_ns, start_cpu_s = time.time_ns(), cpu_s(tree)
        (self.folder / "window-open").touch()
        by_ns = start_ns + round(self.limits.window_s * 1e9)
        while time.time_ns() < by_ns and not self._ended.wait(SAMPLE_EVERY_S):
            self.stacks.sample()
        end_ns, end_cpu_s = time.time_ns(), cpu_s(tree)
        (self.folder / "window-closed").touch()
        jax.profiler.stop_trace()
        recording = self.recording
        recording.window = Window(
            start_ns=start_ns, end_ns=end_ns, cpu_s=end_cpu_s - start_cpu_s, steady=steady
        )
        recording.live_objects = len(gc.get_objects())
        recording.frozen_objects = gc.get_freeze_count()
        recording.gc_thresholds = gc.get_threshold()
        recording.settings = settings(jax)
        recording.rss_bytes, recording.peak_rss_bytes = resident_bytes(tree)


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


def resident_bytes(process: psutil.Process) -> tuple[int, int]:
    """Memory of the process tree now, and the highest that this process ever had."""
    now = 0
    for member in [process, *process.children(recursive=True)]:
        try:
            now += member.memory_info().rss
        except psutil.Error:
            continue
    return now, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
