"""Looks at the arguments and results of some tens of the program's jitted calls.

No array is kept alive: objects are known again by weak references, and by the addresses of their
buffers where a program wraps them anew.
"""

import itertools
import threading
import time
import weakref
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from perfdoctor.injection.calls import OWN_FILES, Function
from perfdoctor.observe.agent.arrays import (
    Look,
    address,
    checksum,
    contents,
    contents_on_device,
    elements_in,
    is_ready,
    shape_of,
)
from perfdoctor.observe.agent.compilation import callers
from perfdoctor.observe.agent.form import Form, dynamic, form_of
from perfdoctor.observe.agent.settings import Value, settings
from perfdoctor.observe.agent.shapes import Shapes
from perfdoctor.observe.agent.unchecked import errors_among
from perfdoctor.schema.recording import Frame

OWN_FILES.add(__file__)

PROBED, SOON_S, LATEST_S, FEWEST_PROBED = 96, 0.5, 6.0, 6
"""Calls whose arguments are looked at, and seconds after which a fewest will do; after LATEST_S so
many are enough as it takes to see something repeat."""
LEAST_CALLS = 4
"""The fewest calls in which something can be seen to repeat."""
STACKS = 8
"""Stacks that are kept of the functions of one name, those of their compilation included."""
MOST_PROBED = 4 * PROBED
"""Calls whose arguments are looked at where some thread makes few of them: a learner, beside an
actor."""
FETCHED = 4
"""Calls of each function whose results may be fetched."""
ALIKE = 64
"""Arrays of one shape that are remembered, to be compared by the addresses of their buffers."""


class Token(NamedTuple):
    """By what an argument is known again."""

    number: int
    """The same number for one object, and for all that wrap the same buffer; -1: a Python
    number."""
    contents: Hashable
    """The value of a Python number; a checksum of a host array, which a program may fill anew, of a
    large array that no call has returned, which it may make anew of the same values, and of a
    result that may be fetched and handed over again; else 0."""


@dataclass(slots=True)
class Probed:
    """A call, and by what its arguments and results can be known again."""

    function: Function
    thread: int
    begin_ns: int
    begin_cpu_ns: int
    inputs: tuple[Token, ...]
    size: int = 0
    """Elements in its arguments."""
    outputs: tuple[Token, ...] = ()
    end_ns: int = 0
    end_cpu_ns: int = 0
    inside_cpu_ns: int = 0
    """Processor time of the calling thread in the jitted function itself."""
    ready: bool | None = None
    """Whether what the thread's last call had returned was computed when it began; None where we
    have waited for it."""


@dataclass
class Prober:
    """Looks at the arguments and results of calls."""

    jax: Any
    calls: list[Probed] = field(default_factory=list)
    forms: dict[int, Form] = field(default_factory=dict)
    """By the function's number."""
    results: dict[int, tuple[Look, ...]] = field(default_factory=dict)
    """The shapes and types of the results, by the function's number."""
    checked: set[int] = field(default_factory=set)
    """The numbers of the functions that return what `checkify` has found."""
    settings: dict[int, dict[str, Value]] = field(default_factory=dict)
    """JAX's settings in the thread that calls, by the function's number."""
    stacks: dict[str, list[list[Frame]]] = field(default_factory=dict)
    """From where each function is called, by its name: a first call, which compiles, is often made
    elsewhere."""
    begun: threading.Event = field(default_factory=threading.Event)
    """Whether a call is made: the first one may wait for all that was called ahead of it, for some
    of its arguments are read."""
    done: threading.Event = field(default_factory=threading.Event)
    failure: str | None = None

    def __post_init__(self) -> None:
        self.shapes = Shapes(self.jax)
        self._known: dict[int, tuple[Any, Token]] = {}
        self._alike: dict[Hashable, deque[tuple[Any, int]]] = {}
        self._last: dict[int, Any] = {}
        self._fetches = 0
        self._numbers = itertools.count()
        self._begin_ns = time.monotonic_ns()

    def __call__(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a call; whatever goes wrong with us is no matter of the program."""
        begin_ns, begin_cpu_ns = time.monotonic_ns(), time.thread_time_ns()
        probed = None
        self.begun.set()
        try:
            if not self.done.is_set() and not is_tracing():
                thread, ready = threading.get_ident(), None
                if thread not in self._last or self._last[thread] is not None:
                    ready = is_ready(self._last.get(thread))
                self.shapes.note(function, args, kwargs)
                leaves = self._leaves(function, args, kwargs)
                inputs = tuple(self._token(leaf, may_share=True) for leaf in leaves)
                size = elements_in(leaves)
                probed = Probed(function, thread, begin_ns, begin_cpu_ns, inputs, size, ready=ready)
        except Exception as error:
            self._fail(error)
        called_cpu_ns = time.thread_time_ns()
        outputs = function.jitted(*args, **kwargs)
        if probed is not None:
            probed.inside_cpu_ns = time.thread_time_ns() - called_cpu_ns
            try:
                self._note(probed, outputs)
            except Exception as error:
                self._fail(error)
        return outputs

    def _note(self, probed: Probed, outputs: Any) -> None:
        leaves = self.jax.tree_util.tree_leaves(outputs)
        if probed.function.number not in self.results:
            if errors_among(self.jax, outputs):
                self.checked.add(probed.function.number)
            self.results[probed.function.number] = tuple(map(shape_of, leaves))
        probed.outputs = tuple(self._token(leaf, may_share=False) for leaf in leaves)
        told = [leaf for leaf in leaves if hasattr(leaf, "is_ready")]  # keys do not tell
        fetched = self._fetched(leaves)
        if any(fetched):
            probed.outputs = tuple(
                token._replace(contents=contents)
                for token, contents in zip(probed.outputs, fetched, strict=True)
            )
            self._last[probed.thread] = None
        elif told:
            self._last[probed.thread] = weakref.ref(told[-1])
        self.calls.append(probed)
        if self._is_enough((time.monotonic_ns() - self._begin_ns) / 1e9):
            self.done.set()
        probed.end_ns, probed.end_cpu_ns = time.monotonic_ns(), time.thread_time_ns()

    def _is_enough(self, passed_s: float) -> bool:
        count = len(self.calls)
        if count >= MOST_PROBED or (passed_s > LATEST_S and count >= LEAST_CALLS):
            return True
        if count < PROBED and (passed_s <= SOON_S or count < FEWEST_PROBED * self._variety()):
            return False
        made: dict[int, list[int]] = {}
        for call in self.calls:
            made.setdefault(call.thread, []).append(call.function.number)
        return all(len(each) >= FEWEST_PROBED * len(set(each)) for each in made.values())

    def _variety(self) -> int:
        return len({each.function.number for each in self.calls})

    def _fail(self, error: Exception) -> None:
        self.failure = f"{type(error).__name__}: {error}"
        self.done.set()

    def _leaves(
        self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> list[Any]:
        """The arrays and numbers among the arguments that are not static."""
        if function.number not in self.forms:
            stacks = self.stacks.setdefault(function.name, [])
            if len(stacks) < STACKS:
                stacks.append(callers())
            self.forms[function.number] = form_of(self.jax, function, args, kwargs)
            self.settings[function.number] = settings(self.jax)
        args, kwargs = dynamic(function, args, kwargs)
        return list(self.jax.tree_util.tree_leaves((args, kwargs)))

    def _token(self, leaf: Any, *, may_share: bool) -> Token:
        """What an argument is known by: the same for the same object, or for what wraps the same
        buffer; for numbers, the value.

        `may_share`: whether it may share its buffer with another array. A result has one of its
        own, and is not asked for its address: it may not be computed yet.
        """
        known = self._known.get(id(leaf))
        if known is not None and known[0]() is leaf:
            return known[1]._replace(contents=contents(leaf) or known[1].contents)
        try:
            reference = weakref.ref(leaf)
        except TypeError:
            return Token(-1, (type(leaf).__name__, repr(leaf)))
        number = self._number_of_buffer(leaf, reference, may_share=may_share)
        values = contents(leaf) or (contents_on_device(self.jax, leaf) if may_share else 0)
        self._known[id(leaf)] = reference, Token(number, values)
        return Token(number, values)

    def _fetched(self, results: list[Any]) -> list[int]:
        """The contents of those which look like host arrays that the program hands over: it may
        have fetched them itself. Of the first calls only, for it makes the program wait.
        """
        from_host = {look for form in self.forms.values() for look in form.from_host}
        wanted = [shape_of(result) in from_host for result in results]
        if not any(wanted) or self._fetches >= FETCHED * self._variety():
            return [0] * len(results)
        self._fetches += 1
        return [
            checksum(each) if is_wanted else 0
            for each, is_wanted in zip(results, wanted, strict=True)
        ]

    def _number_of_buffer(self, leaf: Any, reference: Any, *, may_share: bool) -> int:
        """The number of a live array of the same shape at the same address; else a new one."""
        alike = self._alike.setdefault(shape_of(leaf), deque(maxlen=ALIKE))
        where = None
        for other, number in list(alike) if may_share else ():  # other threads add to it
            held = other()
            if held is None or held is leaf:
                continue
            where = where or address(leaf)
            if where is not None and address(held) == where:
                alike.append((reference, number))
                return number
        number = next(self._numbers)
        alike.append((reference, number))
        return number


def is_tracing() -> bool:
    """Whether jax is tracing a function in this thread, which calls the others that it holds."""
    from jax._src import core

    return not core.trace_state_clean()
