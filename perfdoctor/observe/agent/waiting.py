"""Waits until the program has come to rest, and takes a preview of its steps before."""

import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perfdoctor.observe.agent.listeners import Listeners
from perfdoctor.observe.agent.profiler import Profiler
from perfdoctor.observe.agent.steadiness import has_compiled_for
from perfdoctor.observe.agent.window import on_cpu

LOOK_EVERY_S = 0.05
"""Seconds, before a window: how often to look whether compilation has come to rest."""
SETTLED_S, PREVIEW_S, GAP_S = 0.1, 0.06, 0.7
"""Seconds after a compilation when a trace of a few steps is taken, of that trace, and for which
the program then runs without one at least: XLA numbers the runs of a program, so that the digest
can tell from that preview and the window how fast it runs while nothing is traced."""
AT_WORK_S, AGAIN_S = 2.5, 1.0
"""A run that has compiled now and then for so long may be at its steps already, and over before it
rests: of a function that dispatches operations, it is told now what it takes."""


class Waiting:
    """Waits, and meanwhile sees what can be seen without being in the way."""

    def __init__(
        self,
        preview: Path,
        ended: threading.Event,
        listeners: Listeners,
        may_open: Callable[[], bool],
    ) -> None:
        """`preview`: its folder. `may_open`: whether a window may be opened."""
        self._folder, self._ended, self._may_open = preview, ended, may_open
        self._listeners, self._compilation = listeners, listeners.compilation
        self._looked_s = 0.0

    def until_steady(self, jax: Any, profiler: Profiler, *, glances: bool) -> None:
        """A preview is so early that the program has run without a trace since. `glances`: whether
        its calls are looked at, in case that it ends before a window.
        """
        previewed_ns = 0
        while not self._ended.wait(LOOK_EVERY_S):
            self._listeners.eager.sample()
            if self._is_at_work():
                self._listeners.look_for_operations(early=True)
            if profiler.taken:
                continue
            quiet_s = self._compilation.quiet_for_s()
            since_s = (time.time_ns() - previewed_ns) / 1e9
            fresh = since_s < quiet_s  # nothing compiled since the preview
            if quiet_s > SETTLED_S and glances:
                self._listeners.step.glance()
            if quiet_s > SETTLED_S and not fresh and on_cpu(jax):
                previewed_ns = self._take_preview(profiler)
            elif self._may_open() and (since_s > GAP_S or not fresh):
                if not fresh:
                    self._forget_preview()
                return

    def _is_at_work(self) -> bool:
        """Whether a run that compiles on and on may be at its steps; asked again now and then."""
        compiles_on = self._compilation.quiet_for_s() < SETTLED_S
        compiles_on = compiles_on and has_compiled_for(self._compilation, AT_WORK_S)
        if self._listeners.eager.candidates or not compiles_on:
            return False
        since_s = time.monotonic() - self._looked_s
        if since_s < AGAIN_S:
            return False
        self._looked_s = time.monotonic()
        return True

    def _take_preview(self, profiler: Profiler) -> int:
        """Trace a few steps; the instant until when."""
        self._forget_preview()
        if profiler.start(self._folder):
            self._ended.wait(PREVIEW_S)
        until_ns = time.time_ns()
        profiler.stop()  # at once: there is little to write, and the window is to follow
        return until_ns

    def _forget_preview(self) -> None:
        """It was of another program, or lies before another window."""
        shutil.rmtree(self._folder, ignore_errors=True)
