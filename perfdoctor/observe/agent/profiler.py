"""The profiler, of which a process has only one: the program's own use of it comes first."""

import functools
import threading
from pathlib import Path
from typing import Any


class Profiler:
    """Traces for us, and gives way as soon as the program wants to trace."""

    def __init__(self, jax: Any) -> None:
        self.tracing = False
        self._jax = jax
        self._module = jax._src.profiler
        self._start = self._module.start_trace
        self._lock = threading.Lock()

        @functools.wraps(self._start)
        def start_trace(*arguments: Any, **options: Any) -> Any:
            self.stop()
            return self._start(*arguments, **options)

        self._module.start_trace = jax.profiler.start_trace = start_trace

    def taken(self) -> bool:
        """Whether the program traces itself just now."""
        return not self.tracing and self._module._profile_state.profile_session is not None

    def start(self, folder: Path) -> bool:
        """Trace at level 1, Python's own calls left out; False if the program was quicker."""
        options = self._jax.profiler.ProfileOptions()
        options.host_tracer_level, options.python_tracer_level = 1, 0
        with self._lock:
            if self.taken():
                return False
            self._start(str(folder), profiler_options=options)
            self.tracing = True
        return True

    def stop(self) -> None:
        """Write the trace, if we are tracing."""
        with self._lock:
            if self.tracing:
                self.tracing = False
                self._jax.profiler.stop_trace()
