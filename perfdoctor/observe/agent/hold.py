"""Holds the program's next jitted call up, for a moment."""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from perfdoctor.injection.calls import OWN_FILES, Function, Hearing

OWN_FILES.add(__file__)
LONGEST_S = 5.0
"""That a call is held, whatever happens."""


class Hold:
    """Makes the program's calls, but not before it is over; what they take is computed first."""

    def __init__(self, jax: Any) -> None:
        self.begun, self.held, self.over = (threading.Event() for _ in range(3))
        self._jax = jax

    def __call__(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a call, late."""
        if not self.over.is_set():
            self.begun.set()
            with suppress(Exception):  # it is told to the program where that asks for results
                self._jax.block_until_ready((args, kwargs))
            self.held.set()
            self.over.wait(LONGEST_S)
        return function.jitted(*args, **kwargs)


def let_compute(
    jax: Any,
    hearing: Hearing,
    wait_for: Callable[[Callable[[], bool], float], None],
    is_computed: Callable[[], bool],
) -> None:
    """Holds the program's next call up until something of ours is computed: where XLA has a single
    thread, that takes the program's steps first, one after the other.
    """
    if is_computed():
        return
    hold = hearing.hear = Hold(jax)
    try:
        wait_for(is_computed, LONGEST_S)
    finally:
        hearing.hear = None
        hold.over.set()
