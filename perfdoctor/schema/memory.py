"""Memory of the host and of the devices.

Times are in the unit that the field's name says.
"""

from msgspec import Struct


class LiveArrays(Struct, frozen=True, kw_only=True):
    """jax.Arrays of one shape and type that the program holds."""

    shape: tuple[int, ...]
    dtype: str
    counts: tuple[int, ...]
    """At the instants of `Memory.samples`."""
    bytes_each: int


class MemorySample(Struct, frozen=True, kw_only=True):
    """Memory at one instant of the window."""

    at_s: float
    """Seconds since the window was opened."""
    rss_bytes: int
    """Of the training process."""
    array_bytes: int
    """Of all its jax.Arrays."""


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
    """Of the target's process tree, what was moved to swap."""
    samples: tuple[MemorySample, ...] = ()
    """Over the window, evenly."""
    arrays: tuple[LiveArrays, ...] = ()
    """Those that take most memory."""
    devices: tuple[DeviceMemory, ...] = ()
    """None on the CPU, which keeps no account."""
