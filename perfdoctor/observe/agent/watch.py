"""The watching thread in the observed process: waits until the run is steady, traces a window."""

import atexit
import os
import threading
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from perfdoctor.injection.bootstrap import keep_quiet, stopped
from perfdoctor.injection.calls import Hearing
from perfdoctor.observe.agent.answering import Turns
from perfdoctor.observe.agent.compilation import CACHE_HIT, CACHE_MISS
from perfdoctor.observe.agent.ending import has_ended, interrupt
from perfdoctor.observe.agent.garbage import note_heap
from perfdoctor.observe.agent.listeners import Listeners
from perfdoctor.observe.agent.process import changed, dump_programs
from perfdoctor.observe.agent.profiler import Profiler
from perfdoctor.observe.agent.steadiness import is_at_rest, is_steady
from perfdoctor.observe.agent.waiting import LOOK_EVERY_S, Waiting
from perfdoctor.observe.agent.window import WindowTracer, with_enough_steps
from perfdoctor.protocol import (
    AGAIN,
    BROKEN,
    LEFT,
    PREVIEW,
    PROGRAMS,
    RECORDED,
    RECORDING,
    Orders,
    understood,
)
from perfdoctor.schema.recording import Recording

UNSTEADY_WINDOWS = 2
"""The factor by which a window is longer where compilations take their part of it."""


def attach(jax: Any, orders: Orders) -> None:
    """Called once the program has imported jax; see `perfdoctor.injection`."""
    Watcher(
        Path(orders["folder"]),
        orders["steady_within_s"],
        orders["window_s"],
        capture_to=Path(orders["capture_to"]) if orders.get("capture_to") else None,
        env_at_start=orders["environment"],
        set_up_within_s=orders.get("set_up_within_s"),
    ).attach(jax)


class Watcher(threading.Thread):
    """Records one run of the program that shares this process.

    It leaves files in `folder`, and perfdoctor answers each window with another one, or asks the
    program to stop there: see `perfdoctor.protocol`.
    """

    def __init__(
        self,
        folder: Path,
        steady_within_s: float,
        window_s: float,
        capture_to: Path | None = None,
        env_at_start: Mapping[str, str] = os.environ,
        *,
        set_up_within_s: float | None = None,
    ) -> None:
        """`steady_within_s`, `set_up_within_s`: seconds after which a window is opened though the
        program is not steady; though it compiles something for the first time; None: as soon.
        """
        super().__init__(name="perfdoctor", daemon=True)
        self.folder = folder
        self.window_s = window_s
        self.recording = Recording(start_ns=time.time_ns())
        self.steady_by_ns = self.recording.start_ns + round(steady_within_s * 1e9)
        self.set_up_by_ns = self.recording.start_ns + round((set_up_within_s or 0.0) * 1e9)
        self._ended = threading.Event()
        self.listeners = Listeners(self.begin, self._ended, capture_to, env_at_start)
        self.compilation = self.listeners.compilation
        self.eager, self.step = self.listeners.eager, self.listeners.step
        self._capture_to = capture_to
        self._env_at_start = dict(env_at_start)
        self._process = os.getpid()
        self._turns = Turns(folder, self.step)
        self._waiting = Waiting(folder / PREVIEW, self._ended, self.listeners, self._may_open)

    def attach(self, jax: Any) -> None:
        """Hear of everything that jax does from now on; no thread runs until it compiles."""
        if self._capture_to is not None:
            # So early that it comes after what the program registers itself.
            atexit.register(self.listeners.save_whole)
        self.listen(jax)

    def listen(self, jax: Any, hearing: Hearing | None = None) -> None:
        """The same, but for what is done when the program ends. `hearing`: one that hears of all
        jitted calls by itself; None: what `jax.jit` makes is wrapped.
        """
        self.jax = jax
        self.profiler = Profiler(jax)
        self.recording.programs = dump_programs(jax, self.folder / PROGRAMS)
        self.compilation.dumps_for_us = self.recording.programs == str(self.folder / PROGRAMS)
        self.listeners.attach(jax, hearing)
        self.windows = WindowTracer(
            jax, self.folder, self.recording, self.profiler, self.step.hearing, self._ended
        )

    def begin(self) -> None:
        """Called in the thread that compiles first."""
        if os.getpid() != self._process:  # a fork of it
            return
        self.recording.set_in_code = changed(self._env_at_start, os.environ)
        self.listeners.garbage.install()
        atexit.register(self._leave)
        os.register_at_fork(after_in_child=self.listeners.garbage.remove)
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
            self._wait()
            if not is_known:
                self._learn_the_step()
                self.write()  # it may end, or have to be ended, before more is seen
                self.step.stand_still()
                self.step.use_up()
            self._trace_window(window, with_enough_steps(window_s, self.step.step_ms))
            if self._ended.is_set() and self.recording.window is None:
                return  # what was seen until then is written by who ends us
            self.step.keep()
            if window == 1:
                self.step.look_again()
            self.write()
            (self.folder / RECORDED.format(window)).touch()
            window_s, is_known = self._answer(window)
        if stopped(self.folder):
            self._stop_the_program()

    def _wait(self) -> None:
        glances = self.recording.window is None
        self._waiting.until_steady(self.jax, self.profiler, glances=glances)

    def _may_open(self) -> bool:
        return self._is_late() or is_at_rest(self.compilation)

    def _is_late(self) -> bool:
        now_ns = time.time_ns()
        if not self.steady_by_ns < now_ns < self.set_up_by_ns:
            return now_ns > self.steady_by_ns
        return not self.compilation.is_compiling_something_new

    def _learn_the_step(self) -> None:
        """A set-up may seem calm before it compiles the step, which then is not called for long."""
        self.listeners.look_at_the_step()
        while self._was_too_early() and not self._is_late() and not self._ended.is_set():
            self._wait()
            self.listeners.look_at_the_step()

    def _was_too_early(self) -> bool:
        """Whether nothing was seen that may be the step, and something compiles that may be it."""
        is_unknown = self.step.calls is None and not self.eager.candidates
        return is_unknown and self.compilation.is_compiling

    def _stop_the_program(self) -> None:
        keep_quiet()
        interrupt(lambda: self._ended.is_set() or has_ended())
        if not self._ended.is_set() and has_ended():
            self.listeners.save_whole()

    def _answer(self, window: int) -> tuple[float | None, bool]:
        """The length of the next window, None if there is to be none; and whether what the step is
        is known by now. Until that is told, perfdoctor may ask what a step takes.
        """
        again = self.folder / AGAIN.format(window)
        while not self._ended.wait(LOOK_EVERY_S) and not stopped(self.folder):
            if again.exists():
                return understood(again.read_text())
            self._turns.answer()
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
        if self.recording.window is None:
            self.write()  # that it leaves is not waited for as long as what follows may take
            self.listeners.conclude()
            note_heap(self.recording)
            self.write()

    def write(self) -> None:
        """Write what is known by now; beside and renamed, so that no reader sees half of it."""
        recording = self.recording
        recording.stacks = self.windows.stacks.stacks()
        recording.samples = self.windows.stacks.samples
        recording.others = self.windows.stacks.others()
        recording.handed = self.windows.stacks.handed()
        self.listeners.note(recording)
        beside = self.folder / f"{RECORDING}.part"
        beside.write_bytes(msgspec.json.encode(recording))
        beside.rename(self.folder / RECORDING)

    def _trace_window(self, number: int, window_s: float) -> None:
        if self._ended.is_set():
            return
        steady, usual = is_steady(self.compilation), window_s == self.window_s
        if not steady:
            window_s *= UNSTEADY_WINDOWS
        step_ms = self.step.step_ms
        if not self.windows.trace(number, window_s, steady=steady, usual=usual, step_ms=step_ms):
            return
        self.recording.cache_hits = self.compilation.cache[CACHE_HIT]
        self.recording.cache_misses = self.compilation.cache[CACHE_MISS]
        self.recording.never_rests = self.compilation.never_rests()
