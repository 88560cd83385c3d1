"""The Observation: all that a check may know, as plain data.

Times are in the unit that the field's name says. A part that could not be measured is None, and
`not_measured` says why.
"""

from collections import Counter
from typing import Literal

from msgspec import Struct

from perfdoctor.schema.fix import Tried
from perfdoctor.schema.workload import Workload

OBSERVATION_SCHEMA = "perfdoctor.observation/1"
TargetKind = Literal["reference", "workload", "script", "observation"]


class Target(Struct, frozen=True, kw_only=True):
    """What was observed."""

    kind: TargetKind
    name: str
    args: tuple[str, ...] = ()
    workload: Workload | None = None


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


class Gpu(Struct, frozen=True, kw_only=True):
    """An NVIDIA GPU, as the driver reports it."""

    index: int
    name: str
    memory_bytes: int | None
    memory_used_bytes: int | None
    utilisation_percent: int | None
    driver: str
    cuda_driver_version: str
    processes: tuple["GpuProcess", ...] = ()
    """Those that compute on it, without our own."""


class GpuProcess(Struct, frozen=True, kw_only=True):
    """A process that holds memory on a GPU."""

    pid: int
    name: str
    memory_bytes: int | None


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


class Backend(Struct, frozen=True, kw_only=True):
    """What jax computes on."""

    platform: str
    devices: tuple[Device, ...]
    start_s: float
    """Seconds from the import of jax to the list of its devices."""
    warnings: tuple[str, ...] = ()
    """What jax logged while it looked for devices."""


class Failure(Struct, frozen=True, kw_only=True):
    """Why a run ended before it could be observed."""

    stage: Literal["import", "devices", "run"]
    kind: Literal["raised", "hung", "killed", "out-of-memory"]
    message: str
    seconds: float


class Setting(Struct, frozen=True, kw_only=True):
    """A JAX setting in force that is not JAX's default, and where it came from."""

    name: str
    value: bool | int | float | str | None
    origin: Literal["environment", "code"]


class Compile(Struct, frozen=True, kw_only=True):
    """One compilation: tracing, lowering and XLA together."""

    function: str
    seconds: float
    at_s: float
    """When it ended, seconds after the start of the run."""
    reason: str | None = None
    """What JAX says of why it traced the function."""


class Place(Struct, frozen=True, kw_only=True):
    """A line of code on the main thread's stack, and its share of the samples it is counted in."""

    function: str
    file: str
    line: int
    share: float


class Steps(Struct, frozen=True, kw_only=True):
    """The training steps of the traced window; times are means over its steps.

    A step's time is divided once by what the device did and, where it was idle, by what the main
    thread did: `device_busy_ms` + the five `exposed_*` parts = `time_ms`.
    """

    function: str
    """The jitted function whose repeated dispatch makes the steps."""
    count: int
    left_out: int
    """Steps of the window not counted, since something compiled in them."""
    time_ms: float
    median_ms: float
    p95_ms: float
    standard_error_ms: float
    """Of the mean, from ten consecutive blocks, so that slow drifts count."""
    device_busy_ms: float
    exposed_etl_ms: float
    """The device idle, the main thread in data loading."""
    exposed_dispatch_ms: float
    exposed_wait_ms: float
    """The device idle, the main thread waiting for a result."""
    exposed_gc_ms: float
    exposed_other_ms: float
    etl_ms: float
    """The main thread in data loading, whether the device was busy or not."""
    dispatch_ms: float
    wait_ms: float
    gc_ms: float
    cpu_ms: float
    """CPU time of the whole process tree a step."""
    dispatches: float
    """Jitted functions called by the main thread a step."""
    batch_size: int | None
    samples_per_s: float | None
    etl_places: tuple[Place, ...] = ()
    wait_places: tuple[Place, ...] = ()
    other_places: tuple[Place, ...] = ()


class Collection(Struct, frozen=True, kw_only=True):
    """The collections of one generation that began at one place, during the traced window."""

    generation: int
    count: int
    total_ms: float
    longest_ms: float
    collected: int
    place: str
    """file:line in whose execution they began."""
    explicit: bool
    """Called by the program, `gc.collect()`, not by the allocator's count."""


class Garbage(Struct, frozen=True, kw_only=True):
    """Python's garbage collector during the traced window."""

    live_objects: int
    """Objects that a full collection would visit; frozen ones are not among them."""
    frozen_objects: int
    thresholds: tuple[int, int, int]
    window_s: float
    collections: tuple[Collection, ...] = ()


class Argument(Struct, frozen=True, kw_only=True):
    """An argument of the compiled step."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    donated: bool


class Program(Struct, frozen=True, kw_only=True):
    """The step as lowered to StableHLO."""

    function: str
    arguments: tuple[Argument, ...]
    results: tuple[tuple[tuple[int, ...], str], ...]
    operations: dict[str, int]
    """How often each operation occurs."""
    elements_by_dtype: dict[str, int]
    """Elements computed in one pass over the program's text, by the type of the result."""

    @property
    def data(self) -> tuple[Argument, ...]:
        """The arguments that no result replaces: state has a result of its shape and type."""
        replaced = Counter(self.results)
        found = []
        for argument in self.arguments:
            kind = (argument.shape, argument.dtype)
            if replaced[kind]:
                replaced[kind] -= 1
            else:
                found.append(argument)
        return tuple(found)


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
    """CPU time of everything else over wall time."""
    steal_cores: float
    """CPU time that the hypervisor gave to others over wall time."""
    others: tuple[BusyProcess, ...]
    lost_share: float | None
    """Of the time that the target's threads wanted to run, the share that they had no core."""
    pressure_share: float | None
    """Share of the window in which some task waited for a CPU (/proc/pressure/cpu)."""
    throttled_ms: float | None
    """Time that the cgroup's quota held its processes back."""
    load_average: float


class Memory(Struct, frozen=True, kw_only=True):
    """Memory of the target's process tree at the end of the traced window."""

    rss_bytes: int
    peak_rss_bytes: int
    available_bytes: int
    """What the host, or the cgroup's limit, still has for new allocations."""


class Observation(Struct, frozen=True, kw_only=True):
    """One bounded run of a target."""

    schema: Literal["perfdoctor.observation/1"]
    perfdoctor: str
    created: str
    target: Target
    host: Host
    gpus: tuple[Gpu, ...] = ()
    libraries: Libraries | None = None
    environment: dict[str, str] = {}
    """Environment variables in force that bear on performance."""
    backend: Backend | None = None
    failure: Failure | None = None
    settings: tuple[Setting, ...] | None = None
    compiles: tuple[Compile, ...] | None = None
    steps: Steps | None = None
    garbage: Garbage | None = None
    program: Program | None = None
    load: Load | None = None
    memory: Memory | None = None
    tried: tuple[Tried, ...] = ()
    """The trials that followed the run; the best fix of each check stands first."""
    not_measured: dict[str, str] = {}
    """Why a part is None."""
