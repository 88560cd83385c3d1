"""Looks at the arguments and results of some tens of the program's jitted calls.

No array is kept alive: objects are known again by weak references, and by the addresses of their
buffers where a program wraps them anew.
"""

import inspect
import itertools
import sys
import threading
import time
import weakref
import zlib
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from perfdoctor.injection.calls import OWN_FILES, Function

OWN_FILES.add(__file__)

PROBED, SOON_S, LATEST_S, FEWEST_PROBED = 96, 0.5, 6.0, 6
"""Calls whose arguments are looked at; after SOON_S the fewest will do, and after LATEST_S so many
as it takes to see something repeat."""
LEAST_CALLS = 4
FETCHED = 4
"""Calls of each function whose results may be fetched."""
ALIKE = 64
"""Arrays of one shape that are remembered, to be compared by the addresses of their buffers."""
SAMPLED_BYTES = 4096
"""Of a host array, which a program may fill anew: what is compared of its values."""


class Token(NamedTuple):
    """By what an argument is known again."""

    number: int
    """The same for one object, and for what wraps the same buffer; -1: a Python number."""
    contents: Hashable
    """Of a Python number its value, of a host array a checksum: a program may fill it anew; of a
    result that may be fetched and handed over again, the same; else 0."""


@dataclass(slots=True)
class Probed:
    """A call, and by what its arguments and results can be known again."""

    function: Function
    thread: int
    begin_ns: int
    begin_cpu_ns: int
    inputs: tuple[Token, ...]
    outputs: tuple[Token, ...] = ()
    end_ns: int = 0
    end_cpu_ns: int = 0
    inside_cpu_ns: int = 0
    """Processor time of the calling thread in the jitted function itself."""
    ready: bool | None = None
    """Whether what the thread's last call had returned was computed when it began; None where we
    have waited for it."""


@dataclass(frozen=True)
class Form:
    """What the arguments of a function look like, leaf by leaf."""

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    sizes_bytes: tuple[int, ...]
    shardings: tuple[str, ...]
    donated: tuple[bool, ...]

    @property
    def from_host(self) -> frozenset[Hashable]:
        """The shapes and types of the arguments that are host arrays."""
        looks = zip(self.kinds, self.shapes, self.dtypes, strict=True)
        return frozenset((shape, dtype) for kind, shape, dtype in looks if kind == "host")


@dataclass
class Prober:
    """Looks at the arguments and results of calls."""

    jax: Any
    calls: list[Probed] = field(default_factory=list)
    forms: dict[int, Form] = field(default_factory=dict)
    """By the function's number."""
    done: threading.Event = field(default_factory=threading.Event)
    failure: str | None = None

    def __post_init__(self) -> None:
        self._known: dict[int, tuple[Any, int]] = {}
        self._alike: dict[Hashable, deque[tuple[Any, int]]] = {}
        self._last: dict[int, Any] = {}
        self._fetches = 0
        self._numbers = itertools.count()
        self._begin_ns = time.monotonic_ns()

    def __call__(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a call; whatever goes wrong with us is no matter of the program."""
        begin_ns, begin_cpu_ns = time.monotonic_ns(), time.thread_time_ns()
        probed = None
        try:
            if not self.done.is_set() and not is_tracing():
                leaves = self._leaves(function, args, kwargs)
                inputs = tuple(self._token(leaf, may_share=True) for leaf in leaves)
                thread = threading.get_ident()
                probed = Probed(function, thread, begin_ns, begin_cpu_ns, inputs)
                if thread not in self._last or self._last[thread] is not None:
                    probed.ready = is_ready(self._last.get(thread))
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
        passed_s = (time.monotonic_ns() - self._begin_ns) / 1e9
        enough = len(self.calls) >= PROBED or (
            passed_s > SOON_S and len(self.calls) >= FEWEST_PROBED * self._variety()
        )
        if enough or (passed_s > LATEST_S and len(self.calls) >= LEAST_CALLS):
            self.done.set()
        probed.end_ns, probed.end_cpu_ns = time.monotonic_ns(), time.thread_time_ns()

    def _variety(self) -> int:
        return len({each.function.number for each in self.calls})

    def _fail(self, error: Exception) -> None:
        self.failure = f"{type(error).__name__}: {error}"
        self.done.set()

    def _leaves(
        self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> list[Any]:
        """Of the arguments that are not static."""
        if function.number not in self.forms:
            self.forms[function.number] = form_of(self.jax, function, args, kwargs)
        args, kwargs = dynamic(function, args, kwargs)
        return list(self.jax.tree_util.tree_leaves((args, kwargs)))

    def _token(self, leaf: Any, *, may_share: bool) -> Token:
        """The same for what is the same object, or wraps the same buffer; for numbers, by value.

        `may_share`: of a result, which has a buffer of its own, the address is not asked for: it
        may not be computed yet.
        """
        known = self._known.get(id(leaf))
        if known is not None and known[0]() is leaf:
            return Token(known[1], contents(leaf))
        try:
            reference = weakref.ref(leaf)
        except TypeError:
            return Token(-1, (type(leaf).__name__, repr(leaf)))
        number = self._number_of_buffer(leaf, reference, may_share=may_share)
        self._known[id(leaf)] = reference, number
        return Token(number, contents(leaf))

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
        """Of a live array of the same shape at the same address; else a new one."""
        alike = self._alike.setdefault(shape_of(leaf), deque(maxlen=ALIKE))
        where = None
        for other, number in alike if may_share else ():
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


def is_ready(reference: Any) -> bool:
    """Whether an array is computed, or gone."""
    array = reference() if reference is not None else None
    return array is None or array.is_deleted() or bool(array.is_ready())


def is_tracing() -> bool:
    """Whether jax is tracing a function in this thread, which calls the others that it holds."""
    from jax._src import core

    return not core.trace_state_clean()


def dynamic(
    function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments without the static ones."""
    places = dynamic_places(function, args)
    names = set(options_of(function, "static_argnames"))
    return (
        tuple(args[place] for place in places),
        {name: each for name, each in kwargs.items() if name not in names},
    )


def dynamic_places(function: Function, args: tuple[Any, ...]) -> list[int]:
    """Those of the positional arguments that are not static."""
    count = len(args)
    static = {n if n >= 0 else n + count for n in options_of(function, "static_argnums")}
    names = set(options_of(function, "static_argnames"))
    if names:
        static |= {n for n, name in enumerate(parameters(function)) if name in names}
    return [n for n in range(count) if n not in static]


def options_of(function: Function, name: str) -> tuple[Any, ...]:
    """What `jax.jit` was given, or has inferred from it."""
    info = getattr(function.jitted, "_jit_info", None)
    return tuple(getattr(info, name, ()) or ())


def parameters(function: Function) -> list[str]:
    """The names of the function's positional parameters, as far as they are known."""
    try:
        found = inspect.signature(function.jitted).parameters.values()
    except (TypeError, ValueError):
        return []
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [each.name for each in found if each.kind in positional]


def form_of(jax: Any, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Form:
    """Of the arguments that are not static."""
    places, positional = dynamic_places(function, args), parameters(function)
    names = [positional[n] if n < len(positional) else f"args[{n}]" for n in places]
    args, kwargs = dynamic(function, args, kwargs)
    leaves = jax.tree_util.tree_flatten_with_path((args, kwargs))[0]
    return Form(
        names=tuple(name_of(jax, path, names) for path, _ in leaves),
        kinds=tuple(kind_of(jax, leaf) for _, leaf in leaves),
        shapes=tuple(tuple(getattr(leaf, "shape", ())) for _, leaf in leaves),
        dtypes=tuple(str(getattr(leaf, "dtype", type(leaf).__name__)) for _, leaf in leaves),
        sizes_bytes=tuple(int(getattr(leaf, "nbytes", 0) or 0) for _, leaf in leaves),
        shardings=tuple(sharding_of(leaf) for _, leaf in leaves),
        donated=donated_of(jax, function, dict(zip(places, args, strict=True)), kwargs),
    )


def donated_of(
    jax: Any, function: Function, by_place: dict[int, Any], kwargs: dict[str, Any]
) -> tuple[bool, ...]:
    """By leaf, whether the call may write its results there."""
    numbers = options_of(function, "donate_argnums")
    names = options_of(function, "donate_argnames")
    given = [(place in numbers, each) for place, each in by_place.items()]
    given += [(name in names, kwargs[name]) for name in sorted(kwargs)]
    return tuple(donated for donated, each in given for _ in jax.tree_util.tree_leaves(each))


def name_of(jax: Any, path: tuple[Any, ...], names: list[str]) -> str:
    """An argument's name and the path in its tree: params['w']. `names`: of the positional ones."""
    which, rest = path[1], path[2:]
    index = getattr(which, "idx", None)
    first = str(getattr(which, "key", which)) if index is None else names[index]
    return first + str(jax.tree_util.keystr(rest))


def kind_of(jax: Any, leaf: Any) -> str:
    """device, host, scalar or key."""
    if isinstance(leaf, jax.Array):
        is_key = jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return "key" if is_key else "device"
    return "scalar" if is_number(leaf) else "host"


def copied(jax: Any, array: Any) -> Any:
    """Where it lies, in memory of its own; as soon as it is computed, for which nobody waits."""
    return jax.device_put(array, array.sharding, may_alias=False)


def is_number(leaf: Any) -> bool:
    """Of Python; those of numpy are arrays, though some are of a class of Python's too."""
    return isinstance(leaf, bool | int | float | complex) and not hasattr(leaf, "dtype")


def sharding_of(leaf: Any) -> str:
    """How an array is split over several devices; empty for one."""
    sharding = getattr(leaf, "sharding", None)
    several = sharding is not None and len(sharding.device_set) > 1
    return str(getattr(sharding, "spec", sharding)) if several else ""


def shape_of(leaf: Any) -> Hashable:
    """Of arrays: those of another one can't share a buffer with it."""
    return tuple(getattr(leaf, "shape", ())), str(getattr(leaf, "dtype", type(leaf)))


def address(leaf: Any) -> int | None:
    """Of an array's buffer; None where that can't be told, of several devices say."""
    try:
        if not hasattr(leaf, "unsafe_buffer_pointer"):
            return int(leaf.__array_interface__["data"][0])
        return None if leaf.is_deleted() else int(leaf.unsafe_buffer_pointer())
    except Exception:
        return None


def contents(leaf: Any) -> int:
    """Of a host array, which may be filled anew: a checksum of some of its values."""
    numpy = sys.modules.get("numpy")
    return checksum(leaf) if numpy is not None and isinstance(leaf, numpy.ndarray) else 0


def checksum(array: Any) -> int:
    """Of some of its values, that are fetched if they are not on the host."""
    import numpy

    leaf = numpy.asarray(array)
    flat = leaf.reshape(-1) if leaf.flags.c_contiguous else leaf.ravel()
    step = max(1, leaf.nbytes // SAMPLED_BYTES)
    return zlib.crc32(numpy.ascontiguousarray(flat[::step]).tobytes())
