"""What a run did beside its steps: compilations, collections, threads.

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
    """XLA's part of `seconds`, which a persistent cache would save."""
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


NEARLY_UNCHANGED = 0.9
"""The share of an array's values that stay from which on it is no new data: of two batches few are
the same, of a buffer that is filled row by row nearly all."""


class Place(Struct, frozen=True, kw_only=True):
    """A line of code on the main thread's stack, and its share of the samples it is counted in."""

    function: str
    file: str
    line: int
    share: float


class Handed(Struct, frozen=True, kw_only=True):
    """A large array of NumPy's that the main thread hands to a function of jax's again and again,
    outside of the jitted calls of its step.
    """

    place: Place
    """The line of the program, and the share of the main thread's samples in which jax had it."""
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    unchanged: float
    """The share of its values that were the same from one call to the next one that was seen."""

    @property
    def is_no_new_data(self) -> bool:
        """Whether it is the same array each time, or one of which little was changed."""
        return self.unchanged >= NEARLY_UNCHANGED


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
