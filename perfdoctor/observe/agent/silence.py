"""Keeps quiet what one thread prints and logs, while others go on as ever."""

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

Context = AbstractContextManager[None]
"""A context in which somebody is quiet, or hears nothing."""
Deafness = Callable[[], Context]
"""Makes a context in which nobody else listens to what jax does."""


class Muted:
    """A stream that keeps quiet in one thread."""

    def __init__(self, stream: Any, thread: int) -> None:
        self._stream, self._thread = stream, thread

    def write(self, text: str) -> int:
        """Write as the stream does, in other threads."""
        if threading.get_ident() == self._thread:
            return len(text)
        return int(self._stream.write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def silent() -> Iterator[None]:
    """What this thread prints, logs or warns of while we trace its functions again is not shown."""
    thread = threading.get_ident()
    streams, handle = (sys.stdout, sys.stderr), logging.Logger.handle

    def handle_others(logger: logging.Logger, record: logging.LogRecord) -> None:
        if threading.get_ident() != thread:
            handle(logger, record)

    sys.stdout, sys.stderr = (Muted(each, thread) for each in streams)
    logging.Logger.handle = handle_others  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        logging.Logger.handle = handle  # type: ignore[method-assign]
        sys.stdout, sys.stderr = streams
