"""Acts while the program makes no jitted call: in its own thread, before it makes the next one.

CUDA's profiling library must not be started or stopped while a thread changes a CUDA graph: of a
program that XLA runs by such graphs, three of three runs ended with CUDA_ERROR_LAUNCH_FAILED (H100,
jax 0.11.2); started and stopped like this, none of three did.
"""

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from perfdoctor.injection.calls import OWN_FILES, Function, Hearing

OWN_FILES.add(__file__)
LONGEST_WAIT_S = 2.0
"""For the next call: a program that makes none for so long changes no graph either."""
Answer = TypeVar("Answer")


class Turn(Generic[Answer]):
    """Makes the program's calls, and acts before the first of them; the others wait for that."""

    def __init__(self, action: Callable[[], Answer]) -> None:
        self._action = action
        self._lock = threading.Lock()
        self._answers: list[Answer] = []
        self._errors: list[Exception] = []
        self._acted = threading.Event()

    def __call__(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a call."""
        self._act()
        return function.jitted(*args, **kwargs)

    def taken(self) -> Answer:
        """What the action returned; it is taken here, if no call is made for too long."""
        self._acted.wait(LONGEST_WAIT_S)
        self._act()
        if self._errors:
            raise self._errors[0]
        return self._answers[0]

    def _act(self) -> None:
        with self._lock:
            if self._acted.is_set():
                return
            try:
                self._answers.append(self._action())
            except Exception as error:  # it is the observer's, and no matter of the program
                self._errors.append(error)
            self._acted.set()  # not if the program was interrupted meanwhile: then it is done again


def between_calls(hearing: Hearing, action: Callable[[], Answer]) -> Answer:
    """What `action` returns, or raises, which is done while no thread begins a jitted call."""
    turn, before = Turn(action), hearing.hear
    hearing.hear = turn
    try:
        return turn.taken()
    finally:
        hearing.hear = before
