"""Writes down what jax compiles, and why it traced, through jax.monitoring and jax's own log."""

import logging
import re
import time
from typing import Any

from perfdoctor.schema.recording import CompileEvent

PREFIX = "/jax/core/compile/"
LOWERED, COMPILED = "jaxpr_to_mlir_module_duration", "backend_compile_duration"
LOGGERS = ("jax._src.pjit", "jax._src.interpreters.partial_eval")
"""Where jax logs the explanations of `jax_explain_cache_misses`: 0.8 the first, 0.10 the second."""
EXPLAINED = re.compile(r"(?:for )?(\S+) (?:id=\d+ )?defined at ")


class CompilationWatch:
    """Listens to compile events from the moment that `install` finds jax."""

    def __init__(self) -> None:
        self.events: list[CompileEvent] = []
        self.reasons: dict[str, str] = {}
        self.last_ns = 0
        self._pending = 0

    def __call__(self, name: str, seconds: float, **details: Any) -> None:
        if not name.startswith(PREFIX):
            return
        phase = name.removeprefix(PREFIX)
        self.last_ns = time.time_ns()
        self._pending = max(0, self._pending + (phase == LOWERED) - (phase == COMPILED))
        function = str(details.get("fun_name", "")).removeprefix("jit(").removesuffix(")")
        self.events.append(
            CompileEvent(phase=phase, function=function, seconds=seconds, end_ns=self.last_ns)
        )

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep jax's explanations for ourselves: the program's log is as without us."""
        message = record.getMessage()
        if "TRACING CACHE MISS" not in message:
            return True
        function = EXPLAINED.search(message)
        if function:
            _, _, reason = message.partition("\n")
            self.reasons[function[1]] = reason.strip()
        return False

    def install(self, jax: Any) -> None:
        """Needs jax imported as far as its `monitoring`."""
        jax.monitoring.register_event_duration_secs_listener(self)

    def explain(self, jax: Any) -> None:
        """Have jax say why it traces; needs jax imported wholly."""
        for name in LOGGERS:
            logging.getLogger(name).addFilter(self.filter)
        jax.config.update("jax_explain_cache_misses", True)

    def quiet_for_s(self) -> float:
        """Seconds since anything compiled; 0 while something does or nothing has yet."""
        if self._pending or not self.last_ns:
            return 0.0
        return (time.time_ns() - self.last_ns) / 1e9
