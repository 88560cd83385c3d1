"""All that hears of what the program does, and what is looked at while nothing is traced."""

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from perfdoctor.injection.calls import Hearing
from perfdoctor.observe.agent.compilation import CompilationWatch
from perfdoctor.observe.agent.eager import EagerWatch
from perfdoctor.observe.agent.garbage import GarbageWatch
from perfdoctor.observe.agent.messages import MessageWatch
from perfdoctor.observe.agent.refusal import reason
from perfdoctor.observe.agent.settings import settings
from perfdoctor.observe.agent.step import StepWatch
from perfdoctor.observe.agent.whole import save_first_of
from perfdoctor.schema.recording import Recording


class Listeners:
    """Of compilations, collections, warnings, jitted calls and dispatched operations."""

    def __init__(
        self,
        first: Callable[[], None],
        ended: threading.Event,
        capture_to: Path | None,
        env_at_start: Mapping[str, str],
    ) -> None:
        """`first`: called at the first compilation. `ended`: set once the program has ended.
        `capture_to`: the folder in which a step is saved; None: none is.
        """
        self.garbage = GarbageWatch()
        self.compilation = CompilationWatch(first=first)
        self.messages = MessageWatch()
        self.eager = EagerWatch(ended.wait)
        self.step = StepWatch(
            ended, self.garbage, self.compilation, env_at_start, meanwhile=self.eager.sample
        )
        self._jax: Any = None
        self._ended, self._capture_to = ended, capture_to
        self._env_at_start = dict(env_at_start)
        self._process = os.getpid()

    def attach(self, jax: Any, hearing: Hearing | None = None) -> None:
        """Hear of everything that jax does from now on. `hearing`: see `StepWatch.attach`."""
        self._jax = self.eager.jax = jax
        self.step.attach(jax, hearing)
        self.messages.install()
        self.compilation.install(jax)

    def detach(self) -> None:
        """Hear of nothing any longer; all is as it was before."""
        self.compilation.remove(self._jax)
        self.messages.remove()
        self.garbage.remove()

    def look_at_the_step(self) -> None:
        """Before anything is traced, tell what the calls of a step are, and save one of them."""
        self.eager.forget()
        try:
            self.step.look()
            if self._capture_to is not None and not self._ended.is_set():
                deaf = partial(self.compilation.deaf, self._jax)
                self.step.capture(self._capture_to, settings(self._jax), deaf)
        except Exception as error:  # the window can be traced even so
            self.step.failure = reason(error)
        self.look_for_operations()

    def conclude(self) -> None:
        """The program has ended before a window was traced: keep what was seen until then."""
        made, deaf = settings(self._jax), partial(self.compilation.deaf, self._jax)
        try:
            self.step.conclude(self._capture_to, made, deaf)
        except Exception as error:
            self.step.failure = reason(error)

    def look_for_operations(self, *, early: bool = False) -> None:
        """Look whether a function dispatches its operations one by one.

        `early`: the program may still be compiling what it will then call.
        """
        with suppress(Exception), self.compilation.unexplained(self._jax):
            self.eager.look(early=early, step_ms=self.step.step_ms)

    def save_whole(self) -> None:
        """At the end of the program, save the function that dispatches its operations, if there is
        one.

        A program that is not stopped by us may have taken what it needs with it.
        """
        if os.getpid() != self._process or self._capture_to is None:
            return
        candidates, self.eager.candidates = self.eager.candidates, []
        deaf = partial(self.compilation.deaf, self._jax)
        made = settings(self._jax)
        save_first_of(candidates, self._jax, self._capture_to, made, self._env_at_start, deaf)

    def note(self, recording: Recording) -> None:
        """Add what was heard by now."""
        recording.compiles = self.compilation.events
        recording.reasons = self.compilation.reasons
        recording.calls = self.compilation.calls
        recording.collections = self.garbage.with_sources()
        recording.step_calls = self.step.calls
        recording.capture_failure = self.step.failure
        recording.eager = self.eager.candidates[0].eager if self.eager.candidates else None
        recording.eager_looks = self.eager.in_a_row
        recording.dispatches = self.eager.dispatches
        recording.messages = list(self.messages.messages)
        if self._jax is not None and not recording.settings:  # no window was traced
            recording.settings = settings(self._jax)
        recording.settings = {**recording.settings, **self.step.in_context}
