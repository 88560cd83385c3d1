"""What the agent writes down in the observed process, before any of it is understood.

Instants are Unix time in nanoseconds, so that they can be laid beside the profiler's trace.
"""

from msgspec import Struct, field

from perfdoctor.schema.calls import Eager, StepCalls
from perfdoctor.schema.memory import DeviceMemory, LiveArrays, MemorySample
from perfdoctor.schema.run import Handed, Threads
from perfdoctor.schema.surroundings import Device

Frame = tuple[str, int, str]
"""file, line, function"""


class CompileEvent(Struct, kw_only=True):
    """One phase of a compilation, as jax.monitoring reports it at its end."""

    phase: str
    function: str
    seconds: float
    end_ns: int


class CollectionEvent(Struct, kw_only=True):
    """One run of the garbage collector."""

    generation: int
    start_ns: int
    end_ns: int
    collected: int
    frame: Frame
    source: str
    """The line of code in whose execution it began."""
    thread: int = 0
    """The identifier of the thread that ran it."""


class SampledThread(Struct, kw_only=True):
    """A Python thread of the program beside the main one."""

    name: str
    stacks: list[list[Frame]]
    """Distinct ones, innermost frame first."""
    samples: list[tuple[int, int]]
    """Instant and index into `stacks`."""


class Window(Struct, kw_only=True):
    """The traced part of the run."""

    start_ns: int
    end_ns: int
    cpu_s: float
    """CPU time of the process tree meanwhile."""
    steady: bool
    """Whether compilation had come to rest before."""


class ExecutableRecord(Struct, kw_only=True):
    """What XLA says of one of its programs."""

    name: str
    """jit_<function>"""
    flops: float | None
    bytes_accessed: float | None
    argument_bytes: int
    output_bytes: int
    alias_bytes: int
    temp_bytes: int
    file: str = ""
    """In the folder `executables`: its optimised HLO text."""


class Recording(Struct, kw_only=True):
    """All raw signals of one observed run."""

    start_ns: int
    window: Window | None = None
    stacks: list[list[Frame]] = field(default_factory=list)
    """Distinct stacks of the main thread, innermost frame first."""
    samples: list[tuple[int, int]] = field(default_factory=list)
    """Instant and index into `stacks`."""
    others: list[SampledThread] = field(default_factory=list)
    """A few of the threads beside the main one."""
    handed: list[Handed] = field(default_factory=list)
    """What the main thread hands over outside of its jitted calls."""
    compiles: list[CompileEvent] = field(default_factory=list)
    calls: dict[str, list[list[Frame]]] = field(default_factory=dict)
    """Jitted function to the stacks from which it was compiled, and called when its arguments were
    looked at; frames of jax left out."""
    never_rests: bool = False
    """Whether one function is compiled again and again."""
    reasons: dict[str, str] = field(default_factory=dict)
    """Function name to the newest explanation of why it was traced."""
    collections: list[CollectionEvent] = field(default_factory=list)
    live_objects: int = 0
    frozen_objects: int = 0
    gc_thresholds: tuple[int, int, int] = (0, 0, 0)
    settings: dict[str, bool | int | float | str | None] = field(default_factory=dict)
    """JAX settings in force at the end of the window; of a run without one, when it ended."""
    set_in_code: dict[str, str] = field(default_factory=dict)
    """Environment variables that the program had set itself when it computed first."""
    devices: int = 1
    """Local devices of the default backend."""
    platform: str = ""
    """The default backend of the program itself, which its code may have chosen; empty where
    nobody asked."""
    computes_on: tuple[Device, ...] = ()
    """All its devices."""
    affinity_cores: int = 0
    """On which its main thread may run; 0 where that was not asked."""
    cache_hits: int = 0
    cache_misses: int = 0
    executables: list[ExecutableRecord] = field(default_factory=list)
    threads: Threads | None = None
    memory_samples: list[MemorySample] = field(default_factory=list)
    arrays: list[LiveArrays] = field(default_factory=list)
    available_bytes: int = 0
    device_memory: list[DeviceMemory] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    """What could not be read, by the name of the part, and why."""
    own: list[str] = field(default_factory=list)
    """Folders of the program's own code; what else is installed belongs to libraries."""
    programs: str = ""
    """The folder that JAX wrote the programs to, as StableHLO."""
    step_calls: StepCalls | None = None
    eager: Eager | None = None
    eager_looks: int = 0
    """Looks in a row at which it was that function."""
    dispatches: bool = False
    """Whether the program was seen to dispatch operations in a good part of its time."""
    capture_failure: str | None = None
    """Why the calls of a step were not told, or no step was saved."""
    messages: list[str] = field(default_factory=list)
    """Warnings of JAX that bear on performance, each once."""
    swapped_bytes: int = 0
    rss_bytes: int = 0
    peak_rss_bytes: int = 0
