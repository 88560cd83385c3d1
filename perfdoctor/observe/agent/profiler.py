"""The profiler, of which a process has only one: the program's own use of it comes first."""

import functools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Profiler:
    """Traces for us, and gives way as soon as the program wants to trace."""

    def __init__(self, jax: Any) -> None:
        self.tracing = False
        self.taken = False
        """Whether the program traces itself just now."""
        self._profiler = jax.profiler
        self._start, self._stop = jax.profiler.start_trace, jax.profiler.stop_trace
        self._lock = threading.Lock()
        for module in (jax.profiler, jax._src.profiler):
            module.start_trace = self._before(self._start, taken=True)
            module.stop_trace = self._before(self._stop, taken=False)

    def _before(self, function: Any, *, taken: bool) -> Callable[..., Any]:
        """The program's own call of a function; a trace of ours is ended before."""

        @functools.wraps(function)
        def call(*arguments: Any, **options: Any) -> Any:
            self.stop()
            answer = function(*arguments, **options)
            self.taken = taken
            return answer

        return call

    def start(self, folder: Path) -> bool:
        """Trace at level 1, Python's own calls left out; False if the program was quicker."""
        options = self._profiler.ProfileOptions()
        options.host_tracer_level, options.python_tracer_level = 1, 0
        with self._lock:
            if self.taken:
                return False
            try:
                self._start(str(folder), profiler_options=options)
            except RuntimeError:  # it traces, in a way that we don't see
                return False
            self.tracing = True
        return True

    def stop(self) -> None:
        """Write the trace, if we are tracing."""
        with self._lock:
            if self.tracing:
                self.tracing = False
                self._stop()
