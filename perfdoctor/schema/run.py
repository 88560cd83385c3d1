"""What a run did: its steps, compilations, collections, threads.

Times are in the unit that the field's name says.
"""

from typing import Literal

from msgspec import Struct

CONTROL_FLOW = ("scan", "while", "cond")
"""As JAX names them where they are compiled by themselves: `jax.lax.scan` outside of `jit` is
compiled at each call whose body is made anew."""


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
    backend_s: float = 0.0
    """Of `seconds`, XLA's part, which a persistent cache would save."""
    reason: str | None = None
    """What JAX says of why it traced the function."""

    @property
    def is_control_flow(self) -> bool:
        """Whether it is JAX's own control flow that was called outside of any jitted function."""
        return self.function in CONTROL_FLOW


class CompileCache(Struct, frozen=True, kw_only=True):
    """JAX's persistent compilation cache in this run."""

    folder: str | None
    """None: it is not in use."""
    hits: int
    misses: int
    """Programs that were compiled and written; those below its thresholds are not counted."""


class Place(Struct, frozen=True, kw_only=True):
    """A line of code on the main thread's stack, and its share of the samples it is counted in."""

    function: str
    file: str
    line: int
    share: float


class Steps(Struct, frozen=True, kw_only=True):
    """The training steps of the traced window; times are means over its steps, as they would be
    without the trace as far as that could be told (`slowed`).

    A step's time is divided once by what the device did and, where it was idle, by what the main
    thread did: `device_busy_ms` + the six `exposed_*` parts = `time_ms`.
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
    slowed: float = 1.0
    """Times that the steps took longer for being traced; all times here are without that."""
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
    calls: dict[str, float] = {}
    """Calls a step by jitted function, the commonest first."""
    work: dict[str, float] = {}
    """By jitted function: its share of the bytes that all of them move, in the window."""
    work_ms: dict[str, float] = {}
    """By jitted function: its part of `device_busy_ms`; told on the CPU only, not by jax 0.8."""
    convolution_ms: float | None = None
    """Of `device_busy_ms`, convolutions and what is fused with them; told as `work_ms` is."""
    batch_size: int | None
    """Of one call of `function`."""
    samples_per_s: float | None
    began_s: float = 0.0
    """When the window was opened, seconds after the start of the run."""
    window_s: float = 0.0
    """How long it was open."""
    threads: int = 1
    """Threads that call the function; with more than one, a step is one call by any of them."""
    call_ms: float = 0.0
    """With more than one thread: from the begin of a thread's call to the begin of its next."""
    waits: float = 0.0
    """Times a step that the main thread waited for a result, or read one."""
    waiting_steps: float | None = None
    """Of the steps, the share in which it did so: one that reads all losses of an epoch at once
    waits in one step of many. Not told by older observations."""
    waits_in: str = ""
    """The library in whose own code most of the waiting is, other than jax."""
    operations: float = 0.0
    """Operations (on a GPU: kernels) a step; not told by jax 0.8 on the CPU."""
    uploads: float = 0.0
    """Host arrays a step that were copied to a device as arguments of jitted functions."""
    upload_ms: float = 0.0
    """What these copies took a step, in all threads."""
    callbacks: float = 0.0
    """Host callbacks a step."""
    callback_ms: float = 0.0
    """What they took a step, in all threads."""
    copy_ms: float = 0.0
    """What the device's plain copies took a step; not told by jax 0.8 on the CPU."""
    busy_shares: tuple[float, ...] = ()
    """By device, in the order of their ids: the share of the time in which it computed."""
    exposed_logging_ms: float = 0.0
    reading_ms: float = 0.0
    """The main thread in functions that wait for results, while it does not wait: work on them."""
    """The device idle, the main thread writing logs or checkpoints."""
    outliers: int = 0
    """Steps that took more than three times the median: evaluations, checkpoints, hiccups."""
    outlier_share: float = 0.0
    """Of the steps' whole time, that of the outliers."""
    logging_places: tuple[Place, ...] = ()
    etl_places: tuple[Place, ...] = ()
    wait_places: tuple[Place, ...] = ()
    other_places: tuple[Place, ...] = ()

    @property
    def synchronized(self) -> float:
        """Of the steps, the share in which the main thread waits for a result, as far as known."""
        return min(1.0, self.waits) if self.waiting_steps is None else self.waiting_steps


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


class Pool(Struct, frozen=True, kw_only=True):
    """A pool of threads of a library for numerics (OpenBLAS, MKL, OpenMP), by threadpoolctl."""

    library: str
    threads: int


class Threads(Struct, frozen=True, kw_only=True):
    """Threads and processes of the target in the window."""

    by_name: dict[str, int]
    """Threads of the training process, by the name that the kernel knows (tf_XLAEigen, …)."""
    pools: tuple[Pool, ...]
    children: int
    """Other processes of the target: data workers and the like."""
    child_threads: int
    """Threads of these that ran in the window."""
    ran: int
    """Threads of the training process that ran in the window."""
    forced_switches: float
    """Per second: times that a thread had to leave its core though it could have gone on."""
