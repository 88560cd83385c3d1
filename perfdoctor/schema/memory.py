"""Memory of the host and of the devices.

Times are in the unit that the field's name says.
"""

from msgspec import Struct


class LiveArrays(Struct, frozen=True, kw_only=True):
    """jax.Arrays of one shape and type that the program holds."""

    shape: tuple[int, ...]
    dtype: str
    counts: tuple[int, ...]
    """In the times that end at `Memory.samples`: the fewest of several looks, so that what a step
    holds for a moment does not count."""
    bytes_each: int


class MemorySample(Struct, frozen=True, kw_only=True):
    """Memory in one part of the window."""

    at_s: float
    """The end of the part, in seconds since the window was opened."""
    rss_bytes: int
    """Memory that the training process holds."""
    array_bytes: int
    """Memory of its jax.Arrays, as `LiveArrays.counts` has them."""


class DeviceMemory(Struct, frozen=True, kw_only=True):
    """An accelerator's memory, as jax's allocator reports it."""

    in_use_bytes: int
    peak_bytes: int
    limit_bytes: int | None
    largest_free_bytes: int | None
    """The largest block that could be had: far below what is free, memory is fragmented."""
    pool_bytes: int | None
    """What the allocator has taken from the device."""


class Memory(Struct, frozen=True, kw_only=True):
    """Memory of the target's process tree as the traced window is opened, but for the samples.

    The profiler's own events grow while it is open: `MemorySample.rss_bytes` holds them.
    """

    rss_bytes: int
    peak_rss_bytes: int
    available_bytes: int
    """What the host, or the cgroup's limit, still has for new allocations."""
    swapped_bytes: int = 0
    """Memory of the target's process tree that was moved to swap."""
    samples: tuple[MemorySample, ...] = ()
    """Over the window, evenly."""
    arrays: tuple[LiveArrays, ...] = ()
    """Those that take most memory."""
    devices: tuple[DeviceMemory, ...] = ()
    """None on the CPU, which keeps no account."""
