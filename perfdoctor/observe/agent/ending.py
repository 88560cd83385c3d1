"""Ends the program as Ctrl-C would."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

LOST_S, POLL_S = 5.0, 0.05
"""Seconds for which it is watched whether an interrupt was lost, as many as the program is given to
leave; and seconds between two looks."""


def has_ended() -> bool:
    """Whether the main thread has, and waits for other threads of the program, for ever perhaps."""
    return any(
        code.co_name == "_shutdown" and code.co_filename == threading.__file__
        for code in codes_of_main()
    )


def codes_of_main() -> Iterator[CodeType]:
    """What the main thread is in, the innermost first."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:
        yield frame.f_code
        frame = frame.f_back


def interrupt(is_over: Callable[[], bool]) -> None:
    """Have KeyboardInterrupt raised in the main thread; not to be called in that one.

    Where it comes in a place from which no exception gets out, it is raised once more: a callback
    of the garbage collector, of which jax has one, or of a weak reference, or a `__del__`.
    """
    lost, shown, process = threading.Event(), sys.unraisablehook, os.getpid()

    def hear(unraisable: Any) -> None:
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            lost.set()
        else:
            shown(unraisable)

    sys.unraisablehook = hear
    os.kill(process, signal.SIGINT)
    until = time.monotonic() + LOST_S
    while not is_over() and time.monotonic() < until:
        if lost.wait(POLL_S):
            lost.clear()
            time.sleep(POLL_S)  # what comes just before it blocks is handled only after that
            while hear.__code__ in codes_of_main():  # what is raised in there is lost unheard
                time.sleep(POLL_S)
            os.kill(process, signal.SIGINT)
