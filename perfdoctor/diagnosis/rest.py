"""Lets the loop rest while something is timed beside it, for a moment at a time."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from perfdoctor.injection.calls import OWN_FILES, Hearing
from perfdoctor.observe.agent.hold import Hold

OWN_FILES.add(__file__)
PATIENCE_S = 2.0
"""How long the next call is waited for; a loop that makes none for so long is taken as it is."""
POLL_S = 0.005


class Rests:
    """Holds the loop's next jitted call while a block is run; lets it go on for as long after that.

    What the loop has dispatched before is computed first.
    """

    def __init__(self, jax: Any, hearing: Hearing, is_over: Callable[[], bool]) -> None:
        """`is_over`: whether the loop has ended, so that there is nothing to hold."""
        self.rested_s = 0.0
        """So far."""
        self._jax, self._hearing, self._is_over = jax, hearing, is_over
        self._goes_on_at = 0.0

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """The loop rests in it."""
        if self._is_over():
            yield
            return
        time.sleep(max(0.0, self._goes_on_at - time.monotonic()))
        hold = Hold(self._jax)
        self._hearing.hear = hold
        try:
            self._wait(hold)
            begun = time.monotonic()
            yield
            took_s = time.monotonic() - begun
            self.rested_s += took_s
            self._goes_on_at = time.monotonic() + took_s
        finally:
            self._hearing.hear = None
            hold.over.set()

    def _wait(self, hold: Hold) -> None:
        until = time.monotonic() + PATIENCE_S
        while not hold.held.wait(POLL_S) and time.monotonic() < until and not self._is_over():
            pass
