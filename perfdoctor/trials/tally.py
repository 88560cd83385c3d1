"""The steps that a copy of a script has made, in memory that it shares with us.

Numbers of 64 bits: the calls so far, the compilations so far and what they took in nanoseconds;
whether the copy is asked to rest, and since when it does; begin and end of the newest pauses, in
which it was suspended where it was; and the instants of the newest calls; each of the last two in
its place modulo what is kept. Instants are those of `time.monotonic_ns`.
"""

import mmap
from pathlib import Path

STEPS, EVERY = "tally", "tally-of-all"
"""Files in the folder of a copy: the calls of its step, and of all that it has jitted."""
CALLS, COMPILES, COMPILING_NS, REST_AT, RESTS_SINCE_NS, PAUSES, FIRST_PAUSE = range(7)
"""REST_AT: the number of calls after which it is to rest; 0 for never."""
PAUSES_KEPT = 1 << 13
"""A start of six minutes in turns of a twentieth of a second."""
FIRST = FIRST_PAUSE + 2 * PAUSES_KEPT
KEPT = 1 << 18
"""Calls whose instants are kept: a slice of 10 s with steps of 40 µs."""
SIZE_BYTES = 8 * (FIRST + KEPT)


class Tally:
    """Our side of it."""

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
    def rests_since_ns(self) -> int:
        """When it began to rest, with nothing left to compute; 0 while it does not."""
        return int(self._numbers[RESTS_SINCE_NS])

    def note_pause(self, begin_ns: int, end_ns: int) -> None:
        """It was suspended where it was, from instant to instant; to be noted before it goes on."""
        place = FIRST_PAUSE + 2 * (self._numbers[PAUSES] % PAUSES_KEPT)
        self._numbers[place], self._numbers[place + 1] = begin_ns, end_ns
        self._numbers[PAUSES] += 1

    def paused_ns(self, begin_ns: int, end_ns: int) -> int:
        """Of the time between two instants."""
        return paused_ns(self._numbers, begin_ns, end_ns)

    def ask_to_rest(self, at_call: int) -> None:
        """After this call, or after the next one if it was made by now; one that rests goes on."""
        self._numbers[RESTS_SINCE_NS] = 0
        self._numbers[REST_AT] = at_call

    def let_go_on(self) -> None:
        """Until it is asked again."""
        self._numbers[REST_AT] = 0

    def since(self, call: int) -> list[int]:
        """The instants of the calls from this number on, as far as they are kept; nanoseconds."""
        begin = max(0, call, self.calls - KEPT)
        return [int(self._numbers[FIRST + number % KEPT]) for number in range(begin, self.calls)]


def paused_ns(numbers: memoryview, begin_ns: int, end_ns: int) -> int:
    """How long the copy was suspended between two instants, as far as pauses are kept."""
    found, count = 0, numbers[PAUSES]
    for number in range(count - 1, max(0, count - PAUSES_KEPT) - 1, -1):
        place = FIRST_PAUSE + 2 * (number % PAUSES_KEPT)
        if numbers[place + 1] <= begin_ns:
            break  # so did all before
        found += max(0, min(end_ns, numbers[place + 1]) - max(begin_ns, numbers[place]))
    return found
