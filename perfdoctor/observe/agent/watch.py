"""The watching thread in the observed process: waits until the run is steady, traces a window."""

import atexit
import gc
import os
import shutil
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import psutil

from perfdoctor.injection.bootstrap import BROKEN, LEFT, Orders, keep_quiet, stopped
from perfdoctor.kernel import let_other_threads_go_first
from perfdoctor.observe.agent.capture import reason
from perfdoctor.observe.agent.compilation import CACHE_HIT, CACHE_MISS, CompilationWatch
from perfdoctor.observe.agent.ending import interrupt
from perfdoctor.observe.agent.executables import executables
from perfdoctor.observe.agent.garbage import GarbageWatch
from perfdoctor.observe.agent.memory import (
    MemoryWatch,
    allocated_bytes,
    device_memory,
    memory_left_bytes,
    resident_bytes,
    rss_bytes,
    swapped_bytes,
)
from perfdoctor.observe.agent.messages import MessageWatch
from perfdoctor.observe.agent.profiler import Profiler
from perfdoctor.observe.agent.settings import settings
from perfdoctor.observe.agent.stacks import StackSampler, prompt_switches
from perfdoctor.observe.agent.step import StepWatch
from perfdoctor.observe.agent.threads import ThreadWatch
from perfdoctor.observe.agent.turns import Answer, between_calls
from perfdoctor.schema.recording import KNOWN, Recording, Window

SAMPLE_EVERY_S = 0.005
"""Inside the window."""
LOOK_EVERY_S = 0.05
"""Before it: how often to look whether compilation has come to rest."""
QUIET_S = 1.0
"""So long without a compilation the run counts as steady."""
SETTLED_S, GLANCE_S, GAP_S = 0.1, 0.06, 0.7
"""So long after a compilation a trace of a few steps is taken, and so long at least the program
then runs without one: XLA numbers the runs of a program, so that the digest can tell from that
glance and the window how fast it runs while nothing is traced."""
CALM_S, CALM_SHARE = 2.0, 0.25
"""A run that has compiled for less than this share of the last seconds is as calm as it gets."""
RESTLESS_S = 5.0
"""So long a run that compiles one function again and again is given to come to rest."""
WINDOW_STEPS, LONGEST_WINDOW_S = 8, 12.0
"""So many steps a window is to hold, where these take long, as far as it gets no longer than that.
"""
UNSTEADY_WINDOWS = 2
"""So many times the window, where compilations take their part of it."""
TRACE_SHARE = 0.25
"""Of the memory that is left: a window in which the process grew by so much is ended early. On the
CPU each small operation is an event, and a second of them takes up to 0.9 GB; and where each step
frees and allocates megabytes, events settle in the gaps, so that the heap grows by another one or
two gigabytes (measured, jax 0.10.2 with glibc 2.36)."""
TRACE_BYTES, GROWN_BYTES, SHORTEST_S = 48 * 2**20, 400 * 2**20, 0.9
"""A usual trace is ended too when its events take so much, or the process has grown by so much, and
so long has passed: steps of a millisecond make a million events a second, of which writing and
reading take ten; and a page that is touched first takes 12 us of the program. A program whose
arrays grow is watched for longer. With 64 MiB and the same time none of 16 healthy scripts of
tests/clinic had a finding; 0.7 s are too short for those that evaluate for as long."""
COST_EVERY_S = 0.1
"""How often to look what a window costs; that takes a quarter of a millisecond."""
MEMORY_SAMPLES, MEMORY_EVERY_S = 10, 0.2
"""Over a long window; in a short one fewer, so that each holds several looks. A window that ends
after `SHORTEST_S` has four, as many as it takes to tell a leak."""
LOOK_SHARE, MEMORY_LOOK_S = 0.01, 0.02
"""Of the time that looks at memory may take, and how often there is one at most. Counting an array
takes some microseconds."""


def attach(jax: Any, orders: Orders) -> None:
    """Called once the program has imported jax; see `perfdoctor.injection`."""
    Watcher(
        Path(orders["folder"]),
        orders["steady_within_s"],
        orders["window_s"],
        capture_to=Path(orders["capture_to"]) if orders.get("capture_to") else None,
        env_at_start=orders["environment"],
    ).attach(jax)


class Watcher(threading.Thread):
    """Records one run of the program that shares this process.

    It leaves files in `folder`: for the n-th window `open-n`, `closed-n`, and `recording.json`
    with `recorded-n` after it. The doctor answers each with `again-n`, which holds the length of
    the next window in seconds and `known` if the calls of the step are, or with `stop`.
    """

    def __init__(
        self,
        folder: Path,
        steady_within_s: float,
        window_s: float,
        capture_to: Path | None = None,
        env_at_start: Mapping[str, str] = os.environ,
    ) -> None:
        super().__init__(name="perfdoctor", daemon=True)
        self.folder = folder
        self.window_s = window_s
        self.recording = Recording(start_ns=time.time_ns())
        self.steady_by_ns = self.recording.start_ns + round(steady_within_s * 1e9)
        self.garbage = GarbageWatch()
        self.compilation = CompilationWatch(first=self.begin)
        self.messages = MessageWatch()
        self.stacks = StackSampler()
        self.memory = MemoryWatch()
        self.threads = ThreadWatch()
        self._ended = threading.Event()
        self.step = StepWatch(self._ended, self.garbage, self.compilation, env_at_start)
        self._capture_to = capture_to
        self._env_at_start = dict(env_at_start)
        self._process = os.getpid()

    def attach(self, jax: Any) -> None:
        """Hear of everything that jax does from now on; no thread runs until it compiles."""
        self.jax = jax
        self.profiler = Profiler(jax)
        self.recording.programs = dump_programs(jax, self.folder / "programs")
        self.compilation.dumps_for_us = self.recording.programs == str(self.folder / "programs")
        self.step.attach(jax)
        self.messages.install()
        self.compilation.install(jax)

    def begin(self) -> None:
        """Called in the thread that compiles first."""
        if os.getpid() != self._process:  # a fork of it
            return
        self.recording.set_in_code = changed(self._env_at_start, os.environ)
        self.garbage.install()
        atexit.register(self._leave)
        os.register_at_fork(after_in_child=self.garbage.remove)
        self.start()

    def run(self) -> None:
        """Observe; whatever goes wrong with that is no matter of the program."""
        try:
            self._observe()
        except Exception:
            (self.folder / BROKEN).write_text(traceback.format_exc())

    def _observe(self) -> None:
        """The course of an observation, window by window until it is enough."""
        window_s: float | None = self.window_s
        window, is_known = 0, False
        while window_s is not None and not self._ended.is_set():
            window += 1
            self._wait_until_steady()
            if not is_known:
                self._look_at_the_step()
            self._trace_window(window, self._with_enough_steps(window_s))
            self.step.keep()
            self.write()
            (self.folder / f"recorded-{window}").touch()
            window_s, is_known = self._answer(window)
        if stopped(self.folder):
            keep_quiet()
            interrupt(self._ended.is_set)

    def _look_at_the_step(self) -> None:
        """Before anything is traced: what its calls are, and one of them saved."""
        try:
            self.step.look()
            if self._capture_to is not None and not self._ended.is_set():
                deaf = partial(self.compilation.deaf, self.jax)
                self.step.capture(self._capture_to, settings(self.jax), deaf)
        except Exception as error:  # the window can be traced even so
            self.step.failure = reason(error)

    def _with_enough_steps(self, window_s: float) -> float:
        """The length of a window that holds some steps, if it is known what they take."""
        if self.step.step_ms is None:
            return window_s
        wanted_s = WINDOW_STEPS * self.step.step_ms / 1e3
        return max(window_s, min(wanted_s, LONGEST_WINDOW_S))

    def _answer(self, window: int) -> tuple[float | None, bool]:
        """The length of the next window, None if there is to be none; and whether what the step is
        is known by now.
        """
        again = self.folder / f"again-{window}"
        while not self._ended.wait(LOOK_EVERY_S) and not stopped(self.folder):
            if again.exists():
                length_s, *known = again.read_text().split()
                return float(length_s), known == [KNOWN]
        return None, False

    def _leave(self) -> None:
        """The program may be asked to stop just as it ends by itself: then it is asked again."""
        if os.getpid() != self._process:  # a fork of it
            return
        try:
            self.finish()
        except KeyboardInterrupt:
            self.finish()

    def finish(self) -> None:
        """The program has ended: stop, and leave the recording."""
        self._ended.set()
        (self.folder / LEFT).touch()
        self.join()
        if not (self.folder / "recording.json").exists():
            self.write()

    def write(self) -> None:
        """Write what is known by now; beside and renamed, so that no reader sees half of it."""
        recording = self.recording
        recording.stacks = self.stacks.stacks()
        recording.samples = self.stacks.samples
        recording.compiles = self.compilation.events
        recording.reasons = self.compilation.reasons
        recording.calls = self.compilation.calls
        recording.collections = self.garbage.with_sources()
        recording.step_calls = self.step.calls
        recording.capture_failure = self.step.failure
        recording.messages = list(self.messages.messages)
        beside = self.folder / "recording.json.part"
        beside.write_bytes(msgspec.json.encode(recording))
        beside.rename(self.folder / "recording.json")

    def _wait_until_steady(self) -> None:
        """And take a glance before, so early that the program has run without a trace since."""
        glanced_ns = 0
        while not self._ended.wait(LOOK_EVERY_S):
            if self.profiler.taken:
                continue
            quiet_s = self.compilation.quiet_for_s()
            since_s = (time.time_ns() - glanced_ns) / 1e9
            fresh = since_s < quiet_s  # nothing compiled since the glance
            if quiet_s > SETTLED_S and not fresh and self._on_cpu():
                glanced_ns = self._glance()
            elif self._may_open() and (since_s > GAP_S or not fresh):
                if not fresh:
                    self._forget_glance()
                return

    def _on_cpu(self) -> bool:
        """Only there traces are known to number runs, and to take the program's own memory."""
        return str(self.jax.default_backend()) == "cpu"

    def _glance(self) -> int:
        """Trace a few steps; the instant until when."""
        self._forget_glance()
        if self.profiler.start(self.folder / "glance"):
            self._ended.wait(GLANCE_S)
        until_ns = time.time_ns()
        self.profiler.stop()  # at once: there is little to write, and the window is to follow
        return until_ns

    def _forget_glance(self) -> None:
        """It was of another program, or lies before another window."""
        shutil.rmtree(self.folder / "glance", ignore_errors=True)

    def _may_open(self) -> bool:
        by_now = time.time_ns() > self.steady_by_ns
        return by_now or self._steady() or self._calm() or self._restless()

    def _steady(self) -> bool:
        return self.compilation.quiet_for_s() > QUIET_S

    def _calm(self) -> bool:
        """Compiling now and then is what a program does that runs operation by operation."""
        return self.compilation.share_of_last(CALM_S) < CALM_SHARE

    def _restless(self) -> bool:
        events = self.compilation.events
        if not events or time.time_ns() - events[0].end_ns < RESTLESS_S * 1e9:
            return False
        return self.compilation.never_rests()

    def _trace_window(self, number: int, window_s: float) -> None:
        if self._ended.is_set():
            return
        for folder in ("trace", "executables"):  # of the window before
            shutil.rmtree(self.folder / folder, ignore_errors=True)
        self.memory, self.stacks = MemoryWatch(), StackSampler()
        steady = self._steady()
        if not steady:
            window_s *= UNSTEADY_WINDOWS
        process = psutil.Process()
        self._note_memory(process)
        if not self._in_turn(partial(self.profiler.start, self.folder / "trace")):
            return
        start_ns, start_cpu_s = time.time_ns(), cpu_s(process)
        (self.folder / f"open-{number}").touch()
        self.threads.begin()
        usual = window_s == self.window_s
        with prompt_switches():
            self._sample(start_ns, round(window_s * 1e9), usual=usual)
        end_ns, end_cpu_s = time.time_ns(), cpu_s(process)
        self.recording.threads = self.threads.end((end_ns - start_ns) / 1e9)
        (self.folder / f"closed-{number}").touch()
        self._write_trace()
        self.recording.window = Window(
            start_ns=start_ns, end_ns=end_ns, cpu_s=end_cpu_s - start_cpu_s, steady=steady
        )
        self._note_state(self.jax)

    def _in_turn(self, action: Callable[[], Answer]) -> Answer:
        """On an accelerator, the profiler is begun and ended while no jitted call is made."""
        return action() if self._on_cpu() else between_calls(self.step.hearing, action)

    def _write_trace(self) -> None:
        """In a thread that comes after those of the program; ours samples them again later."""

        def write() -> None:
            let_other_threads_go_first()
            self._in_turn(self.profiler.stop)

        writer = threading.Thread(target=write, name="perfdoctor", daemon=True)
        try:
            writer.start()
        except RuntimeError:  # since Python 3.12, when the program is about to end
            self.profiler.stop()
        else:
            writer.join()

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
        recording.affinity_cores = len(os.sched_getaffinity(os.getpid()))
        recording.cache_hits = self.compilation.cache[CACHE_HIT]
        recording.cache_misses = self.compilation.cache[CACHE_MISS]
        recording.own = own_folders()
        recording.never_rests = self.compilation.never_rests()
        recording.memory_samples = self.memory.samples
        recording.arrays = self.memory.arrays()
        recording.device_memory = device_memory(jax)
        try:
            recording.executables = executables(jax, self.folder / "executables")
        except Exception as error:  # jaxlib's client is no stable interface
            recording.failures["executable"] = f"XLA's account can't be read: {error}"

    def _sample(self, start_ns: int, window_ns: int, *, usual: bool) -> None:
        """Sample the main thread's stack all through the window, and memory now and then."""
        look_ns = memory_look_ns = 0
        due_ns = every_ns = max(window_ns // MEMORY_SAMPLES, round(MEMORY_EVERY_S * 1e9))
        resident_before, allocated_before = rss_bytes(), allocated_bytes()
        on_cpu = self._on_cpu()
        while (passed_ns := time.time_ns() - start_ns) < window_ns:
            if self._ended.wait(SAMPLE_EVERY_S) or not self.profiler.tracing:
                return
            self.stacks.sample()
            if passed_ns >= memory_look_ns:
                begun_ns = time.perf_counter_ns()
                self.memory.look(self.jax)
                took_ns = time.perf_counter_ns() - begun_ns
                memory_look_ns = passed_ns + look_again_ns(took_ns, every_ns)
            if passed_ns >= due_ns:
                self.memory.sample(passed_ns / 1e9)
                due_ns += every_ns
            if passed_ns >= look_ns:
                look_ns += round(COST_EVERY_S * 1e9)
                own_bytes = self.memory.growth_bytes if on_cpu else 0
                grown = rss_bytes() - resident_before - own_bytes
                taken = allocated_bytes() - allocated_before - own_bytes
                room, leaks = self.recording.available_bytes, self.memory.growth_bytes > 0
                if ends_early(grown, taken, room, passed_ns / 1e9, usual=usual, leaks=leaks):
                    return


def look_again_ns(took_ns: int, every_ns: int) -> int:
    """How long after a look at memory, which took so long, the next one is due.

    Where there are many arrays a look holds up the program; but between two samples, of which there
    is one `every_ns`, there is to be one.
    """
    rarely_ns = max(round(MEMORY_LOOK_S * 1e9), round(took_ns / LOOK_SHARE))
    return min(every_ns // 2, rarely_ns)


def ends_early(
    grown_bytes: int,
    taken_bytes: int,
    available_bytes: int,
    passed_s: float,
    *,
    usual: bool,
    leaks: bool,
) -> bool:
    """Whether a trace leaves too little memory, or costs more than it will still tell.

    `grown_bytes`: of the process; `taken_bytes`: of that, by events. `usual`: of a window of the
    usual length; another length was asked for, since one was too short. `leaks`: its arrays take
    more than at the begin, and how that goes on is to be seen.
    """
    if grown_bytes > TRACE_SHARE * available_bytes:
        return True
    costly = taken_bytes > TRACE_BYTES or (grown_bytes > GROWN_BYTES and not leaks)
    return usual and passed_s > SHORTEST_S and costly


def dump_programs(jax: Any, folder: Path) -> str:
    """Have jax write each program that it compiles; where it does so already, to the same place."""
    theirs = jax.config.values.get("jax_dump_ir_to")
    if theirs:
        return str(theirs)
    folder.mkdir()
    jax.config.update("jax_dump_ir_to", str(folder))
    return str(folder)


def changed(before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    """The variables that the program has set itself, or set anew."""
    return {name: value for name, value in now.items() if before.get(name) != value}


def own_folders() -> list[str]:
    """Where the program's own code lies: beside its script, or in the package that was run."""
    main = sys.modules["__main__"]
    file = getattr(main, "__file__", None)
    if file is None:
        return []
    spec = getattr(main, "__spec__", None)
    depth = spec.name.count(".") if spec else 0
    return [str(Path(file).absolute().parents[max(0, depth - 1)])]


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
