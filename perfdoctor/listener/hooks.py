"""Counts collections and compilations while a listener listens, and leaves no hook behind."""

import contextlib
import sys
import time
from collections import deque
from typing import Any

from perfdoctor.injection.calls import OWN_FILES
from perfdoctor.listener.line import Collected
from perfdoctor.observe.agent.compilation import COMPILED, PREFIX, no_longer
from perfdoctor.observe.agent.garbage import GarbageWatch
from perfdoctor.schema.recording import CompileEvent

OWN_FILES.add(__file__)
KEPT = 2000
"""Events that are kept for a report, the newest."""


class Collections(GarbageWatch):
    """Python's garbage collector."""

    def __init__(self) -> None:
        super().__init__()
        self.events = deque(maxlen=KEPT)  # type: ignore[assignment]
        self.total_ns = 0
        self._counts = [0] * 3
        self._spent_ns = [0] * 3

    def __call__(self, phase: str, info: dict[str, Any]) -> None:
        super().__call__(phase, info)
        if phase == "stop":
            event = self.events[-1]
            took_ns = event.end_ns - event.start_ns
            self.total_ns += took_ns
            self._counts[event.generation] += 1
            self._spent_ns[event.generation] += took_ns

    def taken(self) -> tuple[Collected, ...]:
        """Those since the last time that this was asked."""
        counts, self._counts = self._counts, [0] * 3
        spent_ns, self._spent_ns = self._spent_ns, [0] * 3
        return tuple(
            Collected(generation=n, count=count, total_ms=spent_ns[n] / 1e6)
            for n, count in enumerate(counts)
            if count
        )


class Compilations:
    """What jax compiles, once it is imported."""

    def __init__(self) -> None:
        self.events: deque[CompileEvent] = deque(maxlen=KEPT)
        self.count = 0
        self._taken = 0
        self._jax: Any = None

    def install(self) -> None:
        """Listen, if jax is there and it does not yet."""
        jax = sys.modules.get("jax")
        if self._jax is None and hasattr(jax, "monitoring"):
            self._jax = jax
            self._jax.monitoring.register_event_duration_secs_listener(self)

    def remove(self) -> None:
        """No longer."""
        if self._jax is not None:
            with contextlib.suppress(Exception):
                no_longer(self._jax, self, "event_duration")
            self._jax = None

    def __call__(self, name: str, seconds: float, **details: Any) -> None:
        if not name.startswith(PREFIX):
            return
        phase = name.removeprefix(PREFIX)
        function = str(details.get("fun_name", "")).removeprefix("jit(").removesuffix(")")
        self.events.append(
            CompileEvent(phase=phase, function=function, seconds=seconds, end_ns=time.time_ns())
        )
        self.count += phase == COMPILED

    def taken(self) -> int:
        """Those since the last time that this was asked."""
        now, before = self.count, self._taken
        self._taken = now
        return now - before
