"""What the target runs on, and beside what: the machine, its accelerators, its load.

Times are in the unit that the field's name says.
"""

from msgspec import Struct

FLOPS_A_MS = 100e6
"""Floating-point operations of one core in a millisecond: 70 to 130 GFLOP/s were measured with
AVX-512, as the difference between the steps of a small and of the usual batch (gan of
tests/clinic), without a trace."""


class Host(Struct, frozen=True, kw_only=True):
    """The machine, and what of it this process may use."""

    os: str
    cpu_model: str
    architecture: str
    logical_cores: int
    usable_cores: float
    """The smallest of the machine's cores, the affinity mask and the cgroup's quota."""
    affinity_cores: int
    quota_cores: float | None
    cpu_flags: tuple[str, ...]
    """Vector instruction sets of the CPU, as the kernel names them (avx2, avx512f, …)."""
    emulated: str | None
    """What translates the instructions (Rosetta, QEMU), if anything does."""
    memory_bytes: int
    memory_limit_bytes: int | None
    """The cgroup's limit, if there is one."""
    governor: str | None = None
    """What sets the clock of the first core: performance, powersave, schedutil, …"""
    highest_mhz: float | None = None
    """The highest clock that the CPU has."""

    def arithmetic_ms(self, flops: float) -> float:
        """How long about its usable cores take for so many floating-point operations."""
        return flops / (FLOPS_A_MS * self.usable_cores)


class GpuProcess(Struct, frozen=True, kw_only=True):
    """A process that holds memory on a GPU."""

    pid: int
    name: str
    memory_bytes: int | None


class Gpu(Struct, frozen=True, kw_only=True):
    """An NVIDIA GPU, as the driver reports it."""

    index: int
    name: str
    memory_bytes: int | None
    memory_used_bytes: int | None
    utilisation_percent: int | None
    driver: str
    cuda_driver_version: str
    clock_mhz: int | None = None
    """Clock of the multiprocessors, while the window was open."""
    highest_clock_mhz: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    temperature_c: int | None = None
    throttle_reasons: tuple[str, ...] = ()
    """What holds the clock down, as NVML names it: sw_power_cap, hw_thermal_slowdown, …"""
    processes: tuple[GpuProcess, ...] = ()
    """Processes that compute on it, without our own."""


class Libraries(Struct, frozen=True, kw_only=True):
    """Versions installed for the interpreter that runs the target."""

    python: str
    packages: dict[str, str]
    """Distribution name to version: jax, jaxlib, its plugins, and the field's libraries."""
    accelerators: tuple[str, ...] = ()
    """Accelerators that the machine shows without jax: device files, PCI ids."""


class Device(Struct, frozen=True, kw_only=True):
    """A device as `jax.devices()` lists it."""

    id: int
    platform: str
    kind: str
    memory_bytes: int | None = None


class GpuLibrary(Struct, frozen=True, kw_only=True):
    """A library of NVIDIA, as jax's CUDA plugin sees it; versions as it numbers them."""

    name: str
    """cudnn, cublas, cusolver, …"""
    loaded: int | None
    """The version that answered; None: none did, and `error` says why."""
    built_for: int | None
    """The version that the plugin was compiled against, which is the oldest that it takes."""
    error: str = ""
    """What was raised when the plugin asked the library for its version."""


class Backend(Struct, frozen=True, kw_only=True):
    """What jax computes on."""

    platform: str
    devices: tuple[Device, ...]
    start_s: float
    """Seconds from the import of jax to the list of its devices."""
    warnings: tuple[str, ...] = ()
    """What jax logged while it looked for devices."""
    libraries: tuple[GpuLibrary, ...] = ()
    """The libraries that the CUDA backend loads; none on other backends."""


class BusyProcess(Struct, frozen=True, kw_only=True):
    """Another process that took CPU time during the traced window."""

    pid: int
    name: str
    command: str
    cores: float


class Load(Struct, frozen=True, kw_only=True):
    """What else went on on the machine during the traced window."""

    seconds: float
    own_cores: float
    """CPU time of the target and its children over wall time."""
    other_cores: float
    """CPU time of other processes over wall time; the kernel's own threads are none of them."""
    steal_cores: float
    """CPU time that the hypervisor gave to others over wall time."""
    others: tuple[BusyProcess, ...]
    lost_share: float | None
    """The share of the time in which the target's threads wanted to run that they had no core."""
    pressure_share: float | None
    """Share of the window in which some task waited for a CPU (/proc/pressure/cpu)."""
    throttled_ms: float | None
    """Time that the cgroup's quota held its processes back."""
    load_average: float
    clock_mhz: float | None = None
    """Clock of the fastest core, at the end of the window."""
    lasting_cores: float | None = None
    """What other processes take in half of the window at least, the kernel's own threads among
    them: less than `other_cores` where somebody ran a short command."""
