"""One step of a program, saved by the agent in it, to be replayed alone in another process."""

from typing import Literal

from msgspec import Struct, field

from perfdoctor.schema.calls import Kind, Role

MANIFEST = "capture.json"
"""The file that describes a capture, in its folder; it is written last."""
WHOLE, WHOLE_TOLD, WHOLE_BEGUN = "whole", "eager.json", "whole.begun"
"""Names in the folder of a capture: the folder of another capture, that of a function which the
program does not jit; the file that describes this function; and a file that is there while it is
traced after the program's end."""
AS_IT_IS, NO_CALLBACKS = "as-it-is", "no-callbacks"
"""The program as the script calls it, among those of a captured call; and with zeros in place of
what its callbacks return, the only one that can be captured where it calls back."""
ANEW = "anew"
"""Has a replay process compile all that it runs."""
ALIGNED = 64
"""Bytes. An array of NumPy's that begins at a multiple of them is handed over to the CPU without a
copy; where one begins is luck, from launch to launch."""
KEPT, UNCHECKED = "kept", "unchecked"
"""The programs that keep what `jax.checkpoint` would have it compute again; and that leave out what
`checkify` checks."""
LARGER_BATCHES = (32, 128)
"""Batches to try in place of a smaller one; the guide begins with 32 to 128."""


COPIES = 16
"""Steps that are computed at once where a step makes its own data: of one with 2 examples they have
as many as the guide begins with."""
AT_ONCE = f"copies-{COPIES}"
"""The name of their program."""


def batch_program(length: int, larger: int) -> str:
    """The name of a program for `larger` examples in place of `length`."""
    return f"batch-{length}-to-{larger}"


def growth(program: str) -> float:
    """How many times as many examples a program takes."""
    if program == AT_ONCE:
        return COPIES
    if not program.startswith("batch-"):
        return 1.0
    _, length, _, larger = program.split("-")
    return int(larger) / int(length)


def batch_asked(program: str) -> int | None:
    """For how many examples a program is; None: for as many as without a change."""
    return int(program.rpartition("-")[2]) if program.startswith("batch-") else None


class SavedLeaf(Struct, frozen=True, kw_only=True):
    """An argument of a captured call."""

    role: Role
    kind: Kind
    shape: tuple[int, ...]
    dtype: str
    """The type of its elements; of a random key, that of the key's data."""
    key: str = ""
    """The implementation of a key's generator."""
    source: tuple[int, int] | None = None
    """Where state comes from: the number of a call of the step, and of its result."""
    file: str = ""
    """Its values, as raw bytes: the name of a file, or of a part of the file of all values (see
    `Capture.parts`); none: they are to be made."""
    later: tuple[str, ...] = ()
    """Names of its values in the steps that came next: of integers, that may be rows of a table."""
    low: int = 0
    high: int = 1
    """Bounds of an integer's values that are to be made."""
    number: bool | int | float | None = None
    """The value of a Python number."""
    split: tuple[tuple[str, ...], ...] | None = None
    """Over several devices: for each axis, the mesh's axes that it is split along."""
    offset_bytes: int | None = None
    """Of an array of NumPy's: by how much its address lies beyond a multiple of `ALIGNED`; None:
    not told."""
    axes: tuple[int, ...] = ()
    """And its axes, from that whose neighbours lie furthest apart in memory; none: in their order.
    To hand over 50 MiB took 30 ms, and 42 ms if they were transposed."""


class SavedCall(Struct, frozen=True, kw_only=True):
    """A call of a captured step."""

    function: str
    leaves: tuple[SavedLeaf, ...]
    donated: tuple[bool, ...]
    programs: dict[str, str]
    """Files of exported programs: as it is, and changed as a variant needs it."""
    results: int
    executable: str = ""
    """The file of what XLA has compiled in the program for it as it is, if that can be handed
    over; it is for the same machine, and the same version of jax."""


class Capture(Struct, frozen=True, kw_only=True):
    """A step, and what it takes to run it as the script did."""

    calls: tuple[SavedCall, ...]
    settings: dict[str, bool | int | float | str | None]
    """JAX's settings that the program has made."""
    env: dict[str, str]
    """Variables of its environment that its code has set."""
    unset: tuple[str, ...] = ()
    """Variables that its code has removed."""
    cores: tuple[int, ...] = ()
    """The cores that its threads may run on."""
    mesh: tuple[tuple[str, int], ...] = ()
    """Axes of the devices' mesh, with their lengths."""
    made: tuple[str, ...] = ()
    """Arguments whose values were too large to be saved, or gone when the program had ended."""
    parts: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Where values lie in the file of all: the first byte, and how many there are. A file of its
    own for each would have to be opened, for which the program may have us wait each time."""
    all_values: str = ""
    """The name of that file."""
    saved_bytes: int = 0
    reuses_memory: bool = True
    """Whether the program's allocator gives it the same pages in each step, rather than new ones of
    the kernel's."""
    seconds: float = 0.0
    """How long saving it held up the program."""
    failures: dict[str, str] = field(default_factory=dict)
    """Variants that could not be exported, and why."""


class Conditions(Struct, frozen=True, kw_only=True):
    """Under which a captured step is replayed: what the host does beside it, in each step."""

    program: str = AS_IT_IS
    """Which of the captured programs."""
    spin_ms: tuple[float, ...] = ()
    """Before each call: processor time of the calling thread."""
    sleep_ms: tuple[float, ...] = ()
    """Before each call: what it waits for something else than a result."""
    awaited_ms: float = 0.0
    """Processor time of other threads, for which the calling one waits where it sleeps, as for a
    short queue that they fill."""
    overlap_ms: float = 0.0
    """After the last call: work that is done before the host waits for its result."""
    waits: float = 0.0
    """The share of steps in which the host waits for results."""
    waits_after: tuple[int, ...] = ()
    """After which of their calls; none: after the last one."""
    threads_ms: float = 0.0
    """Processor time of other threads that run Python."""
    threads_set_pace: bool = False
    """Whether a step waits for these where they are some steps behind."""
    children_ms: float = 0.0
    """Processor time of other processes."""
    children_set_pace: bool = False
    """Whether a step waits for these where they are some steps behind."""
    children: int = 0
    """How many processes share that work, if a step waits for them; 0: one for each core."""
    restless: int = 0
    """Processes that take what they get of a core, whatever the step does; and threads that leave
    the interpreter to others meanwhile."""
    restless_threads: int = 0
    """Threads that do so, and hold it."""
    resident: Literal["as-it-is", "state", "ahead", "all"] = "as-it-is"
    """What of the script's host arrays lies on the device instead: nothing; its state and its
    constants; the new data of each step, too, which a thread puts there a step ahead; or all of it,
    put there once."""
    donated: bool | None = None
    """Whether the state is donated; None: as in the script."""
    callers: int = 1
    """Threads that make the calls."""

    @property
    def work_ms(self) -> float:
        """The host's own work in a step."""
        return sum(self.spin_ms) + self.overlap_ms

    @property
    def own_ms(self) -> float:
        """What the calling thread takes for itself: it works, or sleeps for nobody's work."""
        return self.work_ms + max(0.0, sum(self.sleep_ms) - self.awaited_ms)


class Order(Struct, frozen=True, kw_only=True):
    """What a replay process is asked for: to make steps for about so long."""

    conditions: Conditions
    seconds: float


class Replayed(Struct, frozen=True, kw_only=True):
    """The answer to it."""

    steps: int = 0
    wall_s: float = 0.0
    inside_cpu_ms: tuple[float, ...] = ()
    """By call of the step: processor time of the calling thread until it returns."""
    waited_ms: float = 0.0
    """From the return of the last call until the step is computed."""
    failure: str | None = None
    """Why it could not be done."""
