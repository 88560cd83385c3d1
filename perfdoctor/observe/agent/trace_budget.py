"""What a trace may cost: memory while it is taken, and time to write and to read it."""

from perfdoctor.observe.agent.memory import MemoryWatch, allocated_bytes, rss_bytes

TRACE_SHARE = 0.25
"""The share of the memory that is left by which the process may grow in a window before that is
ended early. On the CPU each small operation is an event, and a second of them takes up to 0.9 GB;
and where each step frees and allocates megabytes, events settle in the gaps, so that the heap grows
by another one or two gigabytes (measured, jax 0.10.2 with glibc 2.36)."""
TRACE_BYTES, GROWN_BYTES, SHORTEST_S = 48 * 2**20, 400 * 2**20, 0.9
"""A usual trace is ended too when its events take so much, or the process has grown by so much, and
so long has passed: steps of a millisecond make a million events a second, of which writing and
reading take ten; and a page that is touched first takes 12 us of the program. A program whose
arrays grow is watched for longer. With 64 MiB and the same time none of 16 healthy scripts of
tests/clinic had a finding; 0.7 s are too short for those that evaluate for as long."""
MOST_BYTES = 256 * 2**20
"""Events that take more end a usual trace as soon as it holds some steps: thousands of operations
in each of several threads take a gigabyte in a second, whose writing takes 40 s beside the program
(scans of 150 operations by 8 threads on 2 cores, jax 0.10.2)."""
COST_EVERY_S = 0.1
"""How often to look what a window costs; that takes a quarter of a millisecond."""


class TraceBudget:
    """Follows what a trace costs, from its begin."""

    def __init__(
        self,
        memory: MemoryWatch,
        available_bytes: int,
        *,
        usual: bool,
        on_cpu: bool,
        enough_s: float = SHORTEST_S,
    ) -> None:
        """`available_bytes`: what the machine had left before. `usual`: whether the window is of
        the usual length. `on_cpu`: the program's arrays lie in the memory that is looked at.
        `enough_s`: after so long it holds some steps.
        """
        self._enough_s = min(enough_s, SHORTEST_S)
        self._memory, self._available_bytes = memory, available_bytes
        self._usual, self._on_cpu = usual, on_cpu
        self._resident_before, self._allocated_before = rss_bytes(), allocated_bytes()
        self._next_s = 0.0

    def is_spent(self, passed_s: float) -> bool:
        """Whether the trace is to be ended, after so long; looked at now and then."""
        if passed_s < self._next_s:
            return False
        self._next_s += COST_EVERY_S
        growth_bytes = self._memory.growth_bytes
        own_bytes = growth_bytes if self._on_cpu else 0
        return ends_early(
            rss_bytes() - self._resident_before - own_bytes,
            allocated_bytes() - self._allocated_before - own_bytes,
            self._available_bytes,
            passed_s,
            usual=self._usual,
            leaks=growth_bytes > 0,
            enough_s=self._enough_s,
        )


def ends_early(
    grown_bytes: int,
    taken_bytes: int,
    available_bytes: int,
    passed_s: float,
    *,
    usual: bool,
    leaks: bool,
    enough_s: float = SHORTEST_S,
) -> bool:
    """Whether a trace leaves too little memory, or costs more than it will still tell.

    `grown_bytes`: of the process; `taken_bytes`: of that, by events. `usual`: of a window of the
    usual length; another length was asked for, since one was too short. `leaks`: its arrays take
    more than at the begin, and how that goes on is to be seen. `enough_s`: after so long it holds
    some steps.
    """
    if grown_bytes > TRACE_SHARE * available_bytes:
        return True
    costly = taken_bytes > TRACE_BYTES or (grown_bytes > GROWN_BYTES and not leaks)
    too_costly = taken_bytes > MOST_BYTES and passed_s > enough_s
    return usual and (too_costly or (costly and passed_s > SHORTEST_S))
