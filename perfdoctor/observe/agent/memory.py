"""Samples the memory of the observed process: its own, its jax.Arrays, its devices."""

import ctypes
import os
import re
import resource
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from perfdoctor.observe.agent import held
from perfdoctor.observe.cgroup import memory_limit_bytes, memory_used_bytes
from perfdoctor.schema.memory import DeviceMemory, LiveArrays, MemorySample

MOST = 10
"""Shapes kept, those first that take most memory."""
TOO_MANY = 20_000
"""Arrays from which on they are not counted again: it would hold up the program."""
Kinds = Counter[tuple[tuple[int, ...], str, int]]
"""Arrays by shape, type and bytes of each."""


class MemoryWatch:
    """Counts live arrays by shape and type, several times over a window.

    What a step holds for a moment comes and goes: arrays that are not computed yet do not count,
    and of several looks between two samples the fewest of each kind do. So what piles up shows even
    where it does so slowly, in a program that dispatches ahead.
    """

    def __init__(self) -> None:
        self.samples: list[MemorySample] = []
        self._counts: list[Kinds] = []
        self._fewest: Kinds | None = None
        self._stopped = False

    def look(self, jax: Any) -> None:
        """Count what lives and is computed; nothing of the arrays is kept alive by it."""
        if self._stopped:
            return
        counts: Kinds = Counter()
        for array in jax.live_arrays():
            if is_computed(array):
                counts[tuple(array.shape), str(array.dtype), size_bytes(array)] += 1
        self._stopped = counts.total() > TOO_MANY
        self._fewest = counts if self._fewest is None else self._fewest & counts

    def sample(self, at_s: float) -> None:
        """Add what was seen since the sample before, if there was a look."""
        if self._fewest is None:
            return
        counts, self._fewest = self._fewest, None
        self._counts.append(counts)
        array_bytes = sum(each * count for (_, _, each), count in counts.items())
        sample = MemorySample(at_s=at_s, rss_bytes=rss_bytes(), array_bytes=array_bytes)
        self.samples.append(sample)

    @property
    def growth_bytes(self) -> int:
        """By how much all arrays together have grown since the first sample, in bytes; not below
        zero.
        """
        if not self.samples:
            return 0
        return max(0, self.samples[-1].array_bytes - self.samples[0].array_bytes)

    def arrays(self) -> list[LiveArrays]:
        """The shapes that take most memory at the end."""
        if not self._counts:
            return []
        last = self._counts[-1]
        largest = sorted(last, key=lambda kind: -kind[2] * last[kind])[:MOST]
        return [
            LiveArrays(
                shape=kind[0],
                dtype=kind[1],
                bytes_each=kind[2],
                counts=tuple(counts[kind] for counts in self._counts),
            )
            for kind in largest
        ]


def is_computed(array: Any) -> bool:
    """Whether it holds memory that some operation has filled; another thread may delete it now."""
    try:
        return not array.is_deleted() and bool(array.is_ready())
    except RuntimeError:
        return False


def size_bytes(array: Any) -> int:
    """The bytes of one array; keys of random numbers have no size of their own."""
    try:
        return int(array.nbytes)
    except (AttributeError, NotImplementedError):
        return 0


def rss_bytes() -> int:
    """Memory of this process now."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def allocated_bytes() -> int:
    """Memory that this process has allocated and not freed: resident memory without the gaps.

    From glibc's `mallinfo2`; resident memory where there is none (before 2.33), or where another
    allocator took glibc's place.
    """
    try:
        account = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError):
        return rss_bytes()
    account.restype = Account
    found: Account = account()
    return (found.uordblks + found.hblkhd) or rss_bytes()


def give_back_freed() -> None:
    """Give memory that was freed back to the kernel: of a trace's events, some gigabytes may be
    left (jax 0.10.2 with glibc 2.36). Only glibc can be asked for it.
    """
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


class Account(ctypes.Structure):
    """`struct mallinfo2` of malloc.h; of all arenas together."""

    _fields_ = (
        ("arena", ctypes.c_size_t),
        ("ordblks", ctypes.c_size_t),
        ("smblks", ctypes.c_size_t),
        ("hblks", ctypes.c_size_t),
        ("hblkhd", ctypes.c_size_t),
        ("usmblks", ctypes.c_size_t),
        ("fsmblks", ctypes.c_size_t),
        ("uordblks", ctypes.c_size_t),
        ("fordblks", ctypes.c_size_t),
        ("keepcost", ctypes.c_size_t),
    )
    uordblks: int
    """Bytes in use, of those in arenas."""
    hblkhd: int
    """Bytes in mappings of their own."""


def memory_left_bytes() -> int:
    """What the host, or the control group's limit, still has for new allocations."""
    available = int(psutil.virtual_memory().available)
    limit, used = memory_limit_bytes(), memory_used_bytes()
    if limit is not None and used is not None:
        available = min(available, limit - used)
    return max(0, available)


def swapped_bytes() -> int:
    """Memory of this process and its descendants that was moved to swap; 0 where the kernel does
    not say.
    """
    total = 0
    for pid in held.family():
        found = re.search(r"VmSwap:\s+(\d+) kB", held.text(f"/proc/{pid}/status"))
        total += int(found[1]) * 1024 if found else 0
    return total


def resident_bytes() -> tuple[int, int]:
    """Memory of this process and its descendants now, and the highest that it ever had itself."""
    now = 0
    for pid in held.family():
        with suppress(psutil.Error):  # it has ended
            now += psutil.Process(pid).memory_info().rss
    return now, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def device_memory(jax: Any) -> list[DeviceMemory]:
    """What the allocators of the devices report; nothing on the CPU."""
    found = []
    for device in jax.local_devices():
        stats = device.memory_stats() or {}
        if "bytes_in_use" in stats:
            found.append(
                DeviceMemory(
                    in_use_bytes=stats["bytes_in_use"],
                    peak_bytes=stats.get("peak_bytes_in_use", stats["bytes_in_use"]),
                    limit_bytes=stats.get("bytes_limit"),
                    largest_free_bytes=stats.get("largest_free_block_bytes"),
                    pool_bytes=stats.get("pool_bytes"),
                )
            )
    return found
