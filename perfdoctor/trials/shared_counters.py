"""The steps that a worker has made, in memory that it shares with us: our side.

What the numbers mean, and how a worker writes them, says `perfdoctor.counters`.
"""

import mmap
from pathlib import Path

from perfdoctor.counters import (
    CALLS,
    COMPILES,
    COMPILING_NS,
    FIRST,
    FIRST_PAUSE,
    KEPT,
    PAUSES,
    PAUSES_KEPT,
    REST_AT,
    RESTS_SINCE_NS,
    SAMPLES,
    SIZE_BYTES,
    paused_ns,
)


class SharedCounters:
    """A file of counters, all of them zero at first."""

    def __init__(self, file: Path) -> None:
        file.write_bytes(b"")
        with file.open("r+b") as shared:
            shared.truncate(SIZE_BYTES)
            self._memory = mmap.mmap(shared.fileno(), SIZE_BYTES)
        self._numbers = memoryview(self._memory).cast("q")

    @property
    def calls(self) -> int:
        """Steps begun so far."""
        return int(self._numbers[CALLS])

    @property
    def compiles(self) -> int:
        """Programs compiled so far."""
        return int(self._numbers[COMPILES])

    @property
    def compiling_s(self) -> float:
        """What tracing, lowering and compiling took so far."""
        return int(self._numbers[COMPILING_NS]) / 1e9

    @property
    def samples_per_step(self) -> int:
        """The samples of a step, as the worker tells them; 1 if it tells none."""
        return int(self._numbers[SAMPLES]) or 1

    @property
    def rests_since_ns(self) -> int:
        """When it began to rest, with nothing left to compute; 0 while it does not."""
        return int(self._numbers[RESTS_SINCE_NS])

    def note_pause(self, begin_ns: int, end_ns: int) -> None:
        """It was suspended where it was, from instant to instant; to be noted before it goes on."""
        place = FIRST_PAUSE + 2 * (self._numbers[PAUSES] % PAUSES_KEPT)
        self._numbers[place], self._numbers[place + 1] = begin_ns, end_ns
        self._numbers[PAUSES] += 1

    def paused_ns(self, begin_ns: int, end_ns: int) -> int:
        """How long it was suspended between two instants."""
        return paused_ns(self._numbers, begin_ns, end_ns)

    def ask_to_rest(self, at_call: int) -> None:
        """Ask it to rest after this call, or after the next one if it was made by now; one that
        rests goes on.
        """
        self._numbers[RESTS_SINCE_NS] = 0
        self._numbers[REST_AT] = at_call

    def let_go_on(self) -> None:
        """Let it go on until it is asked again."""
        self._numbers[REST_AT] = 0

    def since(self, call: int) -> list[int]:
        """The instants of the calls from this number on, as far as they are kept; nanoseconds."""
        begin = max(0, call, self.calls - KEPT)
        return [int(self._numbers[FIRST + number % KEPT]) for number in range(begin, self.calls)]
