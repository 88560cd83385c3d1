"""The jitted calls of one training step, as a wrapper around them saw them; nothing was traced.

Times are in milliseconds a step, unless the field's name says otherwise.
"""

import math
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from perfdoctor.schema.run import Place

Role = Literal["state", "constant", "new"]
"""state: an earlier call of a step returned it; constant: the same as in the step before; new: any
other."""
Kind = Literal["device", "host", "scalar", "key"]


READY = 0.9
"""The share of calls from which on the host is said to wait for results, or to need longer than
they do: when these calls are made, the results of the call before are computed already."""


MOSTLY = 0.5
"""The larger part."""


NEARLY_ALL = 0.9
"""The share of the bytes of new data that is taken for all of them: arrays that have no place for
each example, a seed say, are small."""


def shared_lengths(arrays: Sequence[tuple[tuple[int, ...], int]]) -> list[int]:
    """Lengths that a batch may have: among the first two axes of all arrays; if they share none, of
    those that hold nearly all bytes.

    `arrays`: shapes, and bytes. In the order of the largest one's axes. A length that is always the
    second may be the batch's behind time, of which one array has a step more; but where the first
    ones differ by more, these are batches, and it is that of their examples.
    """
    whole = sum(size for _, size in arrays)
    largest = max(arrays, key=lambda each: each[1], default=((), 0))[0]

    def may_be(length: int) -> bool:
        firsts = [shape[0] for shape, _ in arrays if length in shape[:2]]
        return length in firsts or max(firsts) - min(firsts) <= 1

    lengths = [n for n in dict.fromkeys(largest[:2]) if may_be(n)]
    of_all = [n for n in lengths if all(n in shape[:2] for shape, _ in arrays)]

    def held(length: int) -> int:
        return sum(size for shape, size in arrays if length in shape[:2])

    return of_all or [n for n in lengths if held(n) >= NEARLY_ALL * whole]


LITTLE = 0.1
"""The share of a step below which what it takes to get a batch is no wait for one."""


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
    """Where state comes from: the number of a call of the step, and of its result."""
    remade: bool = False
    """Whether the program makes it anew in each step, outside of these calls: state, of what they
    have returned; a constant, of the same values."""

    @property
    def is_raw_key(self) -> bool:
        """Whether an array may be a random key of the older form, two words each."""
        return self.dtype == "uint32" and self.shape[-1:] == (2,)


class Call(Struct, frozen=True, kw_only=True):
    """One call of a jitted function in each step."""

    function: str
    leaves: tuple[Leaf, ...]
    before_ms: float
    """From the call before to this one: the host's own work, and its waits."""
    before_cpu_ms: float
    """The processor time of the calling thread in `before_ms`."""
    inside_ms: float
    """From its begin to its return; on the CPU a dispatch may wait for earlier steps."""
    inside_cpu_ms: float
    """The processor time of the calling thread in the call, without what we need to look at its
    arguments, and without calls that take far more than the others: some may compile."""
    is_checked: bool = False
    """Whether it returns what `checkify` has found in it."""


class Restless(Struct, frozen=True, kw_only=True):
    """A thread or process of the program beside the one that makes the step's calls, that worked on
    while the step stood still."""

    name: str
    """A thread's, as Python knows it: Thread-3 (work); a process's command."""
    is_process: bool
    cpu_ms: float
    """Processor time a step, while steps are made."""
    cores: float = 1.0
    """Cores that it took or waited for while the step stood still; with a thread's part of what
    BLAS's threads took."""
    is_program: bool = False
    """Whether it is another program that this one has started, rather than a part of it."""
    holds_interpreter: bool = False
    """Whether other threads had to wait until it gave Python's interpreter back."""


class StepCalls(Struct, frozen=True, kw_only=True):
    """The calls of a step in their order, and what the host does beside them."""

    calls: tuple[Call, ...]
    time_ms: float
    """How long a step takes, from one moment at which its results were computed to another one;
    nothing was traced. What is done now and then, an evaluation or a checkpoint, is in it."""
    steps: int
    """How many steps were timed."""
    timed_ns: tuple[int, int] = (0, 0)
    """Between which two instants, in Unix time; twice 0: not told."""
    covered: float = 1.0
    """The share of the calls that were seen which belongs to such steps."""
    rare_ms: float = 0.0
    """The part of `time_ms` that is done now and then; it holds only where the host does not run
    ahead."""
    between_ms: float | None = None
    """The part of `time_ms` outside of the calls, which nobody looked at then; None: not told."""
    threads: int = 1
    """Threads that make these calls."""
    in_main_thread: bool = True
    is_asked: bool = False
    """Whether another thread calls what these calls train, as an actor or a server does: what they
    wait for is computed there, rather than loaded."""
    ready: float = 0.0
    """The share of the calls before which the results of the call before were computed."""
    collecting_ms: float = 0.0
    """Time in Python's garbage collector."""
    collecting_beside_ms: float = 0.0
    """The part of it that was in other threads; the caller had to wait for the interpreter."""
    compilations: float = 0.0
    """Programs that are compiled in each step."""
    compiling_ms: float = 0.0
    """The part of `time_ms` in which something was traced, lowered or compiled."""
    delayed_ms: float = 0.0
    """How long the calling thread was ready to run, and had no core."""
    threads_cpu_ms: float = 0.0
    """Processor time of the other Python threads."""
    threads_delayed_ms: float = 0.0
    """How long these were ready to run, and had no core."""
    children_cpu_ms: float = 0.0
    """Processor time of other processes of the program."""
    children: int = 0
    """Of these processes, those that take a part of it that matters; 0: none, or not told."""
    busiest_beside: str = ""
    """Of these threads and processes, which takes the most: its name."""
    restless: tuple[Restless, ...] = ()
    """Threads and processes, among these, that never rest."""

    def free_running(self, etl_ms: float) -> tuple[Restless, ...]:
        """Threads and processes that never rest, where the step does not wait for what they do;
        `etl_ms`: what the main thread takes to load a batch, or to get one that is loaded.
        """
        blocked_ms = sum(call.before_ms - call.before_cpu_ms for call in self.calls)
        waited_ms = min(etl_ms, blocked_ms - self.delayed_ms)
        return self.restless if waited_ms < LITTLE * self.time_ms else ()

    def calls_of(self, function: str) -> int:
        """How often a step calls the function of this name."""
        return sum(call.function == function for call in self.calls)

    @property
    def carries_state(self) -> bool:
        """Whether a step hands something on to the next one."""
        return any(leaf.role == "state" for call in self.calls for leaf in call.leaves)

    def brings(self, length: int) -> bool:
        """Whether an argument that is no state has an axis of this length; or two that make it
        together, of which the first one is that of the devices.
        """
        return any(
            length in (*leaf.shape, math.prod(leaf.shape[:2]))
            for call in self.calls
            for leaf in call.leaves
            if leaf.role != "state"
        )

    @property
    def runs_ahead(self) -> bool:
        """Whether the host dispatches steps before those that it has dispatched are computed."""
        return self.ready < READY


class Alone(Struct, frozen=True, kw_only=True):
    """The captured step, replayed in a process of its own."""

    alone_ms: float
    """With no work on the host; without the step's callbacks, if it has any."""
    emulated_ms: float | None
    """Beside what the host was observed to do; None where something of the step can't be replayed:
    callbacks to Python, compilations."""
    observed_ms: float
    made: tuple[str, ...] = ()
    """Arguments whose values could not be saved, and were made up."""

    @property
    def host_gain(self) -> float:
        """What it would gain if the host did nothing but call the step."""
        return self.observed_ms / self.alone_ms

    @property
    def emulation_error(self) -> float | None:
        """The logarithm of the emulated step time over the observed one; None if not known."""
        return math.log(self.emulated_ms / self.observed_ms) if self.emulated_ms else None


class Eager(Struct, frozen=True, kw_only=True):
    """The Python function in which a program dispatches its step operation by operation."""

    function: str
    file: str
    line: int
    call_ms: float
    """From its begin to its return; nothing was traced."""
    share: float
    """The share of the main thread's time that is spent in it."""
    threads_cpu_ms: float = 0.0
    """Processor time of other Python threads from one call to the next; 0: none, or not known."""
    children_cpu_ms: float = 0.0
    """That of other processes of the program."""
    children: int = 0
    """Of these processes, those that take a part of it that matters; 0: none, or not told."""
    reads: Place | None = None
    """Where arrays of jax are read element by element, and the share of the main thread's time that
    takes."""
    holds: tuple[str, ...] = ()
    """Jitted functions that it calls, and operations of jax, if it was saved."""
    trees_ms: float = 0.0
    """If it was saved: what a jitted call takes of the host for the trees of its arguments."""
    call_waits: bool = False
    """And whether it returns when its results are computed, as with equinox."""
    is_saved: bool = False
    """Whether `jax.jit` takes it as a whole, and it was saved."""
    why_not: str = ""

    @property
    def reads_one_by_one(self) -> bool:
        """Whether its operations are mostly made to read arrays element by element."""
        return self.reads is not None and self.reads.share >= MOSTLY * self.share

    @property
    def is_step(self) -> bool:
        """Whether it was saved, and what it takes is most of what a step of the program takes."""
        return self.is_saved and self.share >= MOSTLY
