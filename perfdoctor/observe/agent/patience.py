"""How long the program's calls are waited for."""

import os
import threading
import time
from collections.abc import Callable

from perfdoctor.injection.calls import Hear, Hearing
from perfdoctor.observe.agent.compilation import CompilationWatch
from perfdoctor.observe.agent.threads import Reading, is_blocked, read

FIRST_CALL_S = 3.0
"""Seconds to wait for a jitted call: a program that makes none for so long has none that makes its
steps, or has made all that it will."""
AHEAD_S = 12.0
"""Seconds to wait for a program whose main thread is blocked while others compute: it has called
many steps ahead."""
COMPILING = 2.3
"""The factor of these times for a program that compiles in its steps, so that each call takes
seconds."""
POLL_S = 0.01
"""Seconds between two looks at what is waited for."""


class Patience:
    """Waits for calls, longer where something compiles, or the program has called far ahead."""

    def __init__(
        self,
        ended: threading.Event,
        compilation: CompilationWatch,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        """`ended`: nothing is waited for any longer; `meanwhile`: called now and then."""
        self._ended, self._compilation, self._meanwhile = ended, compilation, meanwhile

    def listen(
        self,
        hearing: Hearing,
        hear: Hear,
        is_done: Callable[[], bool],
        seconds: float,
        has_begun: Callable[[], bool] = lambda: True,
        *,
        waits_long: bool = False,
    ) -> bool:
        """Have it make the calls until it is done; whether it was."""
        hearing.hear = hear
        patience = COMPILING if self._compilation.quiet_for_s() < FIRST_CALL_S / 3 else 1.0
        before = read(os.getpid())
        self.wait_for(has_begun, patience * FIRST_CALL_S)
        if waits_long and self._is_ahead(before, has_begun):
            self.wait_for(has_begun, AHEAD_S)
        if has_begun():
            self.wait_for(is_done, patience * seconds)
        if waits_long and has_begun() and self._is_ahead(before, is_done):
            self.wait_for(is_done, AHEAD_S)
        hearing.hear = None
        return is_done()

    def _is_ahead(self, before: Reading, condition: Callable[[], bool]) -> bool:
        """Whether it is not yet so, and the program waits for what it has called ahead."""
        return not condition() and is_blocked(before, read(os.getpid()), FIRST_CALL_S)

    def wait_for(self, condition: Callable[[], bool], seconds: float) -> None:
        """Until it is so, the time is up, or the program ends."""
        until = time.monotonic() + seconds
        while not condition() and time.monotonic() < until and not self._ended.wait(POLL_S):
            self._meanwhile()
