"""Writes down what jax compiles, and why it traced, through jax.monitoring and jax's own log."""

import logging
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from perfdoctor.injection.calls import OWN_FILES
from perfdoctor.schema.recording import CompileEvent, Frame

PREFIX = "/jax/core/compile/"
"""What the names of the events begin with by which jax.monitoring tells of compilations."""
CACHE_HIT, CACHE_MISS = "/jax/compilation_cache/cache_hits", "/jax/compilation_cache/cache_misses"
"""Events of jax's persistent cache."""
LOWERED, COMPILED = "jaxpr_to_mlir_module_duration", "backend_compile_duration"
"""The events at the end of two phases of a compilation, without PREFIX."""
LOGGERS = (
    "jax._src.pjit",
    "jax._src.interpreters.partial_eval",
    "jax._src.compiler",
    "jax._src.compilation_cache",
)
"""Where jax logs the explanations of `jax_explain_cache_misses` (0.8 the first, 0.10 the second),
that it has dumped a program, and what becomes of its persistent cache."""
DUMPED = "Dumped the module"
"""What jax's message begins with when it has written a program."""
OF_THE_CACHE = re.compile(r"persistent (?:compilation )?cache", re.IGNORECASE)
"""What jax says of its cache when it explains, at a level that is shown."""
RECOMPILED = 8
"""Compilations of one function after which a run is not waited for any more: a set-up compiles its
small helpers for many shapes, but no large function so often."""
CALLS, DEPTH = 4, 30
"""Stacks kept of a function that is compiled, and frames of a stack."""
INSIDE_JAX = "/jax/_src/"
"""Part of the path of jax's own files."""
EXPLAINED = re.compile(r"(?:for )?(\S+) (?:id=\d+ )?defined at ")
"""The function of which an explanation speaks."""


class CompilationWatch:
    """Listens to compile events; `first` is called at the first of them."""

    def __init__(self, first: Callable[[], None] = lambda: None) -> None:
        self.events: list[CompileEvent] = []
        self.reasons: dict[str, str] = {}
        self.calls: dict[str, list[list[Frame]]] = {}
        self.last_ns = 0
        self.cache = dict.fromkeys((CACHE_HIT, CACHE_MISS), 0)
        self._pending = 0
        self._deaf = False
        self._first = first
        self.explains_for_us = True
        """Whether jax explains its cache misses because we asked for it."""
        self.dumps_for_us = True
        """Whether the programs are written because we asked for it."""

    def __call__(self, name: str, seconds: float, **details: Any) -> None:
        if not name.startswith(PREFIX) or self._deaf:
            return
        phase = name.removeprefix(PREFIX)
        first, self._first = self._first, lambda: None  # once, though several threads compile
        first()
        self.last_ns = time.time_ns()
        self._pending = max(0, self._pending + (phase == LOWERED) - (phase == COMPILED))
        function = str(details.get("fun_name", "")).removeprefix("jit(").removesuffix(")")
        if phase == COMPILED and len(self.calls.setdefault(function, [])) < CALLS:
            self.calls[function].append(callers())
        self.events.append(
            CompileEvent(phase=phase, function=function, seconds=seconds, end_ns=self.last_ns)
        )

    def count(self, name: str, **details: Any) -> None:
        """Hits and misses of the persistent cache."""
        if name in self.cache:
            self.cache[name] += 1

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep for ourselves what jax logs because of us: the program's log is as without us."""
        message = record.getMessage()
        if message.startswith(DUMPED):
            return not self.dumps_for_us
        if record.levelno == logging.WARNING and OF_THE_CACHE.search(message):
            return not self.explains_for_us
        if "TRACING CACHE MISS" not in message:
            return True
        function = EXPLAINED.search(message)
        if function:
            _, _, reason = message.partition("\n")
            self.reasons[function[1]] = reason.strip()
        return False

    def install(self, jax: Any) -> None:
        """Listen, and have jax say why it traces."""
        jax.monitoring.register_event_duration_secs_listener(self)
        jax.monitoring.register_event_listener(self.count)
        for name in LOGGERS:
            logging.getLogger(name).addFilter(self.filter)
        self.explains_for_us = not getattr(jax.config, "jax_explain_cache_misses", False)
        jax.config.update("jax_explain_cache_misses", True)

    def remove(self, jax: Any) -> None:
        """No longer listen, and leave no trace of it."""
        no_longer(jax, self, "event_duration")
        no_longer(jax, self.count, "event")
        for name in LOGGERS:
            logging.getLogger(name).removeFilter(self.filter)
        if self.explains_for_us:
            jax.config.update("jax_explain_cache_misses", False)

    @contextmanager
    def deaf(self, jax: Any) -> Iterator[None]:
        """What is traced and lowered meanwhile is our doing, and neither counted nor dumped."""
        dumped_to = jax.config.values.get("jax_dump_ir_to")
        self._deaf = True
        if self.dumps_for_us:
            jax.config.update("jax_dump_ir_to", "")
        try:
            yield
        finally:
            if self.dumps_for_us:
                jax.config.update("jax_dump_ir_to", dumped_to)
            self._deaf = False

    @contextmanager
    def unexplained(self, jax: Any) -> Iterator[None]:
        """Cache misses are not explained meanwhile, which takes a twentieth of a step that is
        dispatched operation by operation.
        """
        if self.explains_for_us:
            jax.config.update("jax_explain_cache_misses", False)
        try:
            yield
        finally:
            if self.explains_for_us:
                jax.config.update("jax_explain_cache_misses", True)

    def never_rests(self) -> bool:
        """Whether one function takes most of the compiling and is compiled again and again."""
        spent: Counter[str] = Counter()
        times: Counter[str] = Counter()
        for event in self.events:
            spent[event.function] += round(event.seconds * 1e6)
            times[event.function] += event.phase == COMPILED
        if not spent:
            return False
        function, most = spent.most_common(1)[0]
        return times[function] >= RECOMPILED and most >= spent.total() / 2

    def share_of_last(self, seconds: float) -> float:
        """The share of the last seconds in which something compiled; 1 while nothing is known of so
        many, or something compiles just now.
        """
        since_ns = time.time_ns() - round(seconds * 1e9)
        if self._pending or not self.events or self.events[0].end_ns > since_ns:
            return 1.0
        spent_s = 0.0
        for event in reversed(self.events):
            if event.end_ns < since_ns:
                break
            spent_s += event.seconds
        return min(1.0, spent_s / seconds)

    @property
    def is_compiling_something_new(self) -> bool:
        """Whether what compiles just now has not been compiled before, as in a set-up."""
        lowered = [each.function for each in self.events if each.phase == LOWERED]
        compiled = {each.function for each in self.events if each.phase == COMPILED}
        return self.is_compiling and bool(lowered) and lowered[-1] not in compiled

    @property
    def is_compiling(self) -> bool:
        """Whether something compiles just now."""
        return self._pending > 0

    def quiet_for_s(self) -> float:
        """Seconds since anything compiled; 0 while something does or nothing has yet."""
        if self._pending or not self.last_ns:
            return 0.0
        return (time.time_ns() - self.last_ns) / 1e9


def no_longer(jax: Any, callback: Callable[..., None], kind: str) -> None:
    """Take a listener back from jax.monitoring: by a public function in newer versions, by one that
    jax has for its own tests in 0.8. `kind`: event, or event_duration.
    """
    public = getattr(jax.monitoring, f"unregister_{kind}_listener", None)
    own = getattr(jax._src.monitoring, f"_unregister_{kind}_listener_by_callback", None)
    with suppress(AssertionError, ValueError):  # the program has cleared them all
        (public or own or (lambda _: None))(callback)


def callers() -> list[Frame]:
    """The stack that led into jax, innermost frame first."""
    found: list[Frame] = []
    frame = sys._getframe(2)
    while frame is not None and len(found) < DEPTH:
        code = frame.f_code
        ours = code.co_filename in OWN_FILES
        if not ours and (found or INSIDE_JAX not in code.co_filename):
            found.append((code.co_filename, frame.f_lineno, code.co_qualname))
        frame = frame.f_back  # type: ignore[assignment]
    return found
