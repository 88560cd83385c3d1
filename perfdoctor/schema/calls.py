"""The jitted calls of one training step, as a wrapper around them saw them; nothing was traced.

Times are in milliseconds a step, unless the field's name says otherwise.
"""

from typing import Literal

from msgspec import Struct

Role = Literal["state", "constant", "new"]
"""state: an earlier call of a step returned it; constant: the same as in the step before; new: any
other."""
Kind = Literal["device", "host", "scalar", "key"]


READY = 0.9
"""Of the calls: where the results of the last one are computed so often when the next is made, the
host waited for them, or needed longer than they did."""


class Leaf(Struct, frozen=True, kw_only=True):
    """An array or number among the arguments of a call; static arguments are none."""

    argument: str
    """The parameter's name and the path in its tree: params['w']."""
    role: Role
    kind: Kind
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    donated: bool = False
    sharding: str = ""
    """Over several devices: how it is split."""
    source: tuple[int, int] | None = None
    """Of state: the call of the step, and its result, that it comes from."""


class Call(Struct, frozen=True, kw_only=True):
    """One call of a jitted function in each step."""

    function: str
    leaves: tuple[Leaf, ...]
    before_ms: float
    """From the call before to this one: the host's own work, and its waits."""
    before_cpu_ms: float
    """Of `before_ms`, the processor time of the calling thread."""
    inside_ms: float
    """From its begin to its return; on the CPU a dispatch may wait for earlier steps."""
    inside_cpu_ms: float
    """The same without our looking at its arguments: of the processor only."""


class StepCalls(Struct, frozen=True, kw_only=True):
    """The calls of a step in their order, and what the host does beside them."""

    calls: tuple[Call, ...]
    time_ms: float
    """Of a step, from one moment at which its results were computed to another one; nothing was
    traced. What is done now and then, an evaluation or a checkpoint, is in it."""
    steps: int
    """So many were timed."""
    covered: float = 1.0
    """Of the calls that were seen, the share that belongs to such steps."""
    rare_ms: float = 0.0
    """Of `time_ms`, what is done now and then; it holds only where the host does not run ahead."""
    threads: int = 1
    """Threads that make these calls."""
    in_main_thread: bool = True
    ready: float = 0.0
    """Of the calls, the share before which what the last one had returned was computed."""
    collecting_ms: float = 0.0
    """In Python's garbage collector."""
    compilations: float = 0.0
    """In each step."""
    delayed_ms: float = 0.0
    """The calling thread was ready to run, and had no core."""
    threads_cpu_ms: float = 0.0
    """Processor time of the other Python threads."""
    children_cpu_ms: float = 0.0
    """Processor time of other processes of the program."""

    @property
    def runs_ahead(self) -> bool:
        """Whether the host dispatches steps before those that it has dispatched are computed."""
        return self.ready < READY


class Alone(Struct, frozen=True, kw_only=True):
    """The captured step, replayed in a process of its own."""

    alone_ms: float
    """With nothing on the host; without its callbacks, if it has any."""
    emulated_ms: float | None
    """Beside what the host was observed to do; None where something of the step can't be replayed:
    callbacks to Python, compilations."""
    observed_ms: float
    made: tuple[str, ...] = ()
    """Arguments whose values were too large to be saved, and were made up."""
