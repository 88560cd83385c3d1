"""The profiler, of which a process has only one: the program's own use of it comes first."""

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class Profiler:
    """Traces for us, and gives way as soon as the program wants to trace."""

    def __init__(self, jax: Any) -> None:
        self.tracing = False
        self.taken = False
        """Whether the program traces itself just now."""
        self._profiler = jax.profiler
        self._state = getattr(jax._src.profiler, "_profile_state", None)
        self._start, self._stop = jax.profiler.start_trace, jax.profiler.stop_trace
        self._lock = threading.Lock()
        self._inside = threading.local()
        self._replaced: list[tuple[Any, str, Any]] = []
        for home, start, stop in starts_and_stops(jax):
            self._replace(home, start, taken=True)
            self._replace(home, stop, taken=False)

    def _replace(self, home: Any, name: str, *, taken: bool) -> None:
        function = getattr(home, name)
        self._replaced.append((home, name, function))
        setattr(home, name, self._before(function, taken=taken))

    def remove(self) -> None:
        """Trace no longer, and see the program's own use of it no longer."""
        self.stop()
        while self._replaced:
            home, name, function = self._replaced.pop()
            setattr(home, name, function)

    def _before(self, function: Any, *, taken: bool) -> Callable[..., Any]:
        """The program's own call of a function; a trace of ours is ended before."""

        @functools.wraps(function)
        def call(*arguments: Any, **options: Any) -> Any:
            if getattr(self._inside, "a_call", False):  # of ours
                return function(*arguments, **options)
            with self._lock:
                self._end()
                before, self.taken = self.taken, True  # we begin nothing meanwhile
            after = before
            try:
                answer = function(*arguments, **options)
                after = taken
            finally:
                self.taken = after
            return answer

        return call

    @contextmanager
    def _ours(self) -> Iterator[None]:
        self._inside.a_call = True
        try:
            yield
        finally:
            self._inside.a_call = False

    def start(self, folder: Path) -> bool:
        """Trace at level 1, Python's own calls left out; False if the program was quicker."""
        options = self._profiler.ProfileOptions()
        options.host_tracer_level, options.python_tracer_level = 1, 0
        with self._lock:
            if self.taken:
                return False
            try:
                with self._ours():
                    self._start(str(folder), profiler_options=options)
                    write_profile_only(self._state, folder)
            except RuntimeError:  # it traces, in a way that we don't see
                return False
            self.tracing = True
        return True

    def stop(self) -> None:
        """Write the trace, if we are tracing."""
        with self._lock:
            self._end()

    def _end(self) -> None:
        if self.tracing:
            self.tracing = False
            with self._ours():
                self._stop()


class ProfileOnly:
    """JAX's session of the profiler, which writes the profile and no copy of it as JSON: that takes
    as long as the profile itself, and cores from the program (24 and 10 s for 78 MB, jax 0.10.2).
    """

    def __init__(self, session: Any, folder: Path) -> None:
        self._session, self._folder = session, folder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def stop_and_export(self, _: str) -> None:
        """End a trace, as JAX does."""
        profile = self._session.stop()
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "profile.xplane.pb").write_bytes(profile)

    def stop_and_get_profile_data(self) -> None:
        """End a trace, as JAX does since 0.12."""
        self.stop_and_export("")


def write_profile_only(state: Any, folder: Path) -> None:
    """Have the trace that was just started written so, where JAX keeps it as we know it."""
    session: Any = getattr(state, "session", None)  # since jax 0.12
    if hasattr(session, "_raw_session") and hasattr(session, "log_dir"):
        session._raw_session = ProfileOnly(session._raw_session, folder)
        session.log_dir = None
    elif hasattr(getattr(state, "profile_session", None), "stop_and_export"):
        state.profile_session = ProfileOnly(state.profile_session, folder)


def starts_and_stops(jax: Any) -> list[tuple[Any, str, str]]:
    """The methods that begin and end a program's own traces: since jax 0.12 all in one class."""
    session = getattr(jax.profiler, "ProfileSession", None)
    if session is not None:
        return [(session, "start", "stop")]
    return [(home, "start_trace", "stop_trace") for home in (jax.profiler, jax._src.profiler)]
