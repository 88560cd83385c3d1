"""A captured step, made ready to run: in the replay process, which imports jax."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import cycle
from operator import itemgetter
from pathlib import Path
from typing import Any

import jax
import jax.export
import msgspec
import numpy as np
from jax.experimental.serialize_executable import deserialize_and_load
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from perfdoctor.schema.capture import ALIGNED, AS_IT_IS, Capture, Conditions, SavedCall, SavedLeaf

Outputs = list[tuple[Any, ...]]
"""The newest results of each call of a step."""
DRAWN = 1 << 20
"""Values that are drawn where none were saved; larger arrays repeat them."""


@dataclass(frozen=True)
class ReadyCall:
    """A compiled call, and where its arguments are got from."""

    function: Callable[..., tuple[Any, ...]]
    sources: tuple[int, ...]
    """Calls of the step, of whose results some are arguments."""
    batches: Iterator[tuple[Any, ...]]
    """The arguments that are no state, step by step."""
    arranged: Callable[[tuple[Any, ...]], tuple[Any, ...]]
    """Takes the arguments, in their order, out of all results of the sources and a batch."""
    on_host: frozenset[int]
    """Arguments that make a way over the host."""
    put_ahead: frozenset[int] = frozenset()
    """Of a batch, new data of the host that another thread puts on the device."""

    def __call__(self, latest: Outputs, batch: tuple[Any, ...] | None = None) -> tuple[Any, ...]:
        """Its results; `batch`: in place of the next one."""
        pool = next(self.batches) if batch is None else batch
        for place in self.sources:
            pool = latest[place] + pool
        arguments = self.arranged(pool)
        if self.on_host:
            arguments = tuple(
                np.asarray(each) if n in self.on_host else each for n, each in enumerate(arguments)
            )
        return self.function(*arguments)


class Step:
    """The calls of a captured step under some conditions."""

    def __init__(self, folder: Path, capture: Capture, conditions: Conditions) -> None:
        self._folder, self._capture, self._conditions = folder, capture, conditions
        self._mesh = mesh_of(capture)
        self.calls = [self._ready(call, place) for place, call in enumerate(capture.calls)]

    def first(self) -> Outputs:
        """What each call is to find as the results of the step before: the captured state."""
        found: list[list[Any]] = [[None] * call.results for call in self._capture.calls]
        for place, call in enumerate(self._capture.calls):
            for leaf, aval in zip(call.leaves, self._exported(call).in_avals, strict=True):
                if leaf.source is not None and leaf.source[0] >= place:
                    maker, index = leaf.source
                    found[maker][index] = self._placed(leaf, self._value(leaf, aval))
        return [tuple(results) for results in jax.block_until_ready(found)]

    def _exported(self, call: SavedCall) -> Any:
        name = self._conditions.program
        file = self._folder / (call.programs.get(name) or call.programs[AS_IT_IS])
        if file not in EXPORTED:
            EXPORTED[file] = jax.export.deserialize(bytearray(file.read_bytes()))
        return EXPORTED[file]

    def _ready(self, call: SavedCall, own_place: int) -> ReadyCall:
        exported = self._exported(call)
        state = {n: leaf.source for n, leaf in enumerate(call.leaves) if leaf.source is not None}
        fixed = [n for n in range(len(call.leaves)) if n not in state]
        places = sorted({place for place, _ in state.values()})
        begins, size = {}, 0
        for place in reversed(places):
            begins[place] = size
            size += self._capture.calls[place].results
        where = {n: begins[place] + index for n, (place, index) in state.items()}
        where |= {n: size + position for position, n in enumerate(fixed)}
        donated = self._donated(call, own_place)

        def flat(*arguments: Any) -> tuple[Any, ...]:
            return tuple(exported.call(*arguments))

        flat.__name__ = call.function if call.function.isidentifier() else "step"
        function = self._as_compiled(call, donated) or jax.jit(
            flat, donate_argnums=tuple(sorted(donated))
        )
        return ReadyCall(
            function=function,
            sources=tuple(places),
            batches=cycle(self._batches(call, fixed, exported.in_avals)),
            arranged=taker([where[n] for n in range(len(call.leaves))]),
            on_host=frozenset(
                n
                for n in state
                if call.leaves[n].kind == "host" and self._conditions.resident == "as-it-is"
            ),
            put_ahead=frozenset(
                position
                for position, n in enumerate(fixed)
                if self._conditions.resident == "ahead" and is_new_data(call.leaves[n])
            ),
        )

    def _as_compiled(self, call: SavedCall, donated: set[int]) -> Any:
        """What XLA has compiled for the call in the program, if it is what is asked for here."""
        if self._conditions.program != AS_IT_IS or not call.executable:
            return None
        return loaded(self._folder / call.executable, self._exported(call), donated)

    def _batches(
        self, call: SavedCall, places: Sequence[int], avals: Sequence[Any]
    ) -> list[tuple[Any, ...]]:
        """The arguments at these places: of the captured step, and of those after it."""
        columns = [
            [self._argument(leaf, avals[n]) for leaf in later(call.leaves[n])] for n in places
        ]
        count = max(map(len, columns), default=1)
        return [tuple(column[k % len(column)] for column in columns) for k in range(count)]

    def _donated(self, call: SavedCall, place: int) -> set[int]:
        """The leaves whose buffers may be written to; of the rest, values are used again. What the
        call replaces itself may be donated; what another call of the step does, it takes later.
        """
        if self._conditions.donated is False:
            return set()
        sources = [leaf.source for leaf in call.leaves]
        replaced = {n for n, source in enumerate(sources) if source and source[0] == place}
        asked = {n for n, source in enumerate(sources) if source and call.donated[n]}
        return asked | replaced if self._conditions.donated else asked

    def _argument(self, leaf: SavedLeaf, aval: Any) -> Any:
        """A value that is passed in each step: where the script has it, or on the device."""
        if leaf.number is not None and self._conditions.resident == "all":
            return jax.numpy.asarray(leaf.number, aval.dtype)
        if leaf.number is not None:
            return leaf.number
        value = self._value(leaf, aval)
        if leaf.kind == "host" and self._stays_on_host(leaf):
            return value if leaf.offset_bytes is None else lying(value, leaf)
        return jax.block_until_ready(self._placed(leaf, value))

    def _stays_on_host(self, leaf: SavedLeaf) -> bool:
        resident = self._conditions.resident
        return resident == "as-it-is" or (resident in ("state", "ahead") and leaf.role == "new")

    def _value(self, leaf: SavedLeaf, aval: Any) -> Any:
        """On the host, as it was saved or made."""
        if leaf.file:
            raw = raw_values(self._folder, self._capture, leaf.file)
            value = np.frombuffer(raw, jax.numpy.dtype(leaf.dtype)).reshape(leaf.shape)
        else:
            value = made(leaf)
        if leaf.key:
            return value
        value = grown(value, aval.shape)
        return value if value.dtype == aval.dtype else value.astype(aval.dtype)

    def _placed(self, leaf: SavedLeaf, value: Any) -> Any:
        """On the device, or on all of them."""
        if leaf.split is not None and self._mesh is not None:
            spec = PartitionSpec(*(axes or None for axes in leaf.split))
            value = jax.device_put(value, NamedSharding(self._mesh, spec))
        else:
            value = jax.numpy.array(value)  # a copy: what is donated must not be the host's
            if self._mesh is None:  # committed, as results are: else what takes it compiles twice
                value = jax.device_put(value, jax.local_devices()[0])
        return jax.random.wrap_key_data(value, impl=leaf.key) if leaf.key else value


def raw_values(folder: Path, capture: Capture, name: str) -> bytes:
    """The values that were saved by this name."""
    if name not in capture.parts:
        return (folder / name).read_bytes()
    begin, size = capture.parts[name]
    with (folder / capture.all_values).open("rb") as file:
        file.seek(begin)
        return file.read(size)


def loaded(file: Path, exported: Any, donated: set[int]) -> Any:
    """An executable, called with the leaves of its arguments; None if it can't be loaded here,
    takes other arguments than the exported program, or donates others than `donated`.

    The file is a pickle, as jax has it: none is loaded but what our own agent has written into a
    folder of ours.
    """
    takes = jax.tree_util.tree_structure((tuple(exported.in_avals), {}))
    gives = jax.tree_util.tree_structure(tuple(exported.out_avals))
    try:
        prepare_lapack()
        found = deserialize_and_load(file.read_bytes(), takes, gives)
    except Exception:  # it holds what is only the program's, say: then it is compiled here
        return None
    arguments = jax.tree_util.tree_leaves(found.args_info)
    wanted = [(aval.shape, aval.dtype) for aval in exported.in_avals]
    takes_them = [(each.shape, each.dtype) for each in arguments] == wanted
    donates = {n for n, each in enumerate(arguments) if each.donated}
    return found if takes_them and donates == donated else None


@cache
def prepare_lapack() -> None:
    """Have jax look up LAPACK's functions, as it does when it lowers what calls them: a loaded
    executable that calls one ends the process where nobody has.
    """
    jax.jit(jax.lax.linalg.cholesky).lower(jax.ShapeDtypeStruct((1, 1), np.float32))


def later(leaf: SavedLeaf) -> list[SavedLeaf]:
    """An argument of the captured step, and the same one of those after it."""
    return [leaf, *(msgspec.structs.replace(leaf, file=file) for file in leaf.later)]


def lying(value: Any, leaf: SavedLeaf) -> Any:
    """The array as it lies in the program's memory: as far beyond a multiple of `ALIGNED`, and with
    its axes in that order.
    """
    memory = np.empty(value.nbytes + 2 * ALIGNED, np.uint8)
    begin = ((leaf.offset_bytes or 0) - memory.__array_interface__["data"][0]) % ALIGNED
    axes = leaf.axes if len(leaf.axes) == value.ndim else tuple(range(value.ndim))
    rows = memory[begin : begin + value.nbytes].view(value.dtype)
    found = rows.reshape([value.shape[axis] for axis in axes]).transpose(np.argsort(axes))
    found[...] = value
    return found


def is_new_data(leaf: SavedLeaf) -> bool:
    """Whether it is an array that comes from the host, another one in each step."""
    return leaf.kind == "host" and leaf.role == "new" and leaf.number is None


EXPORTED: dict[Path, Any] = {}
"""Programs that were read, by their files."""


def grown(value: Any, shape: tuple[int, ...]) -> Any:
    """Repeated along the axes in which a changed program wants more, or along a new first one."""
    if value.ndim < len(shape):
        value = np.broadcast_to(value, shape)
    return value if value.shape == shape else np.resize(value, shape)


def taker(indices: Sequence[int]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """Some members of a tuple, as a tuple."""
    if len(indices) < 2:
        return lambda pool: tuple(pool[index] for index in indices)
    return itemgetter(*indices)


def mesh_of(capture: Capture) -> Mesh | None:
    """The devices as the script has arranged them."""
    if not capture.mesh:
        return None
    names, lengths = zip(*capture.mesh, strict=True)
    return jax.make_mesh(lengths, names)


def made(leaf: SavedLeaf) -> Any:
    """Values where none were saved: small numbers, integers within the bounds that were seen."""
    draw = np.random.default_rng(0)
    count = int(np.prod(leaf.shape, dtype=np.int64))
    dtype = np.dtype(jax.numpy.dtype(leaf.dtype))
    some: Any
    if jax.numpy.issubdtype(dtype, np.integer):
        some = draw.integers(leaf.low, max(leaf.low + 1, leaf.high), min(count, DRAWN))
    elif dtype == np.bool_:
        some = draw.random(min(count, DRAWN)) < 0.5
    else:
        some = 0.02 * draw.standard_normal(min(count, DRAWN))
    return np.resize(some.astype(dtype), leaf.shape)
