"""When to look at the program's memory, over a window."""

import time
from typing import Any

from perfdoctor.observe.agent.memory import MemoryWatch

MEMORY_SAMPLES, MEMORY_EVERY_S = 10, 0.2
"""Over a long window; in a short one fewer, so that each holds several looks."""
FEWEST_SAMPLES = 4
"""As many as it takes to tell a leak."""
LOOK_SHARE, MEMORY_LOOK_S = 0.01, 0.02
"""The share of the time that looks at memory may take, and the seconds between two of them at
least. Counting an array takes some microseconds."""


class MemoryLooks:
    """Looks at memory and samples it as the window goes on."""

    def __init__(self, memory: MemoryWatch, jax: Any, window_ns: int) -> None:
        self._memory, self._jax = memory, jax
        self._look_ns = 0
        self._due_ns = self._every_ns = max(
            window_ns // MEMORY_SAMPLES, round(MEMORY_EVERY_S * 1e9)
        )

    @property
    def are_enough(self) -> bool:
        """Whether the samples tell what piles up."""
        return len(self._memory.samples) >= FEWEST_SAMPLES

    def after(self, passed_ns: int) -> None:
        """Look, or sample what was seen, if that is due so long after the window's begin."""
        if passed_ns >= self._look_ns:
            begun_ns = time.perf_counter_ns()
            self._memory.look(self._jax)
            took_ns = time.perf_counter_ns() - begun_ns
            self._look_ns = passed_ns + look_again_ns(took_ns, self._every_ns)
        if passed_ns >= self._due_ns:
            self._memory.sample(passed_ns / 1e9)
            self._due_ns = max(self._due_ns, passed_ns - self._every_ns // 2) + self._every_ns


def look_again_ns(took_ns: int, every_ns: int) -> int:
    """How long after a look at memory, which took so long, the next one is due.

    Where there are many arrays a look holds up the program; but between two samples, of which there
    is one `every_ns`, there is to be one.
    """
    rarely_ns = max(round(MEMORY_LOOK_S * 1e9), round(took_ns / LOOK_SHARE))
    return min(every_ns // 2, rarely_ns)
