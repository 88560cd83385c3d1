"""The steps that a copy of a script has made, in memory that it shares with us.

Numbers of 64 bits: the calls so far, the compilations so far and what they took in nanoseconds;
whether the copy is asked to rest, and since when it does; and the instants of the newest calls
(`time.monotonic_ns`), each in its place modulo `KEPT`.
"""

import mmap
from pathlib import Path

STEPS, EVERY = "tally", "tally-of-all"
"""Files in the folder of a copy: the calls of its step, and of all that it has jitted."""
CALLS, COMPILES, COMPILING_NS, REST_AT, RESTS_SINCE_NS, FIRST = 0, 1, 2, 3, 4, 5
"""REST_AT: the number of calls after which it is to rest; 0 for never."""
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
