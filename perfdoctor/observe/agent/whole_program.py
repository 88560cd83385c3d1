"""Has jax trace a function that dispatches its operations one by one, as one program."""

import inspect
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from perfdoctor.observe.agent.arrays import is_host_array
from perfdoctor.observe.agent.frames import LIBRARIES
from perfdoctor.observe.agent.outline import Arguments, Outline
from perfdoctor.observe.agent.refusal import Unwanted
from perfdoctor.observe.agent.rewriting import equations_in


@dataclass(frozen=True)
class Slot:
    """An attribute of one of the program's own objects that holds arrays: a trainer's state."""

    owner: Any
    name: str
    value: Any


@dataclass(frozen=True)
class Traced:
    """A function as one program, and what its arguments look like."""

    closed: Any
    leaves: Sequence[Any]
    """Outlines, and arrays of the host."""
    replaced_by: Sequence[int | None]
    """By leaf, the result that takes its place in the next call."""
    trees: Any
    """Its arguments as the program has them, with what it changes in place."""

    @property
    def holds(self) -> tuple[str, ...]:
        """The names of the jitted functions that it calls, and of jax's operations."""
        names = set[str]()
        for each in equations_in(self.closed.jaxpr):
            names |= {each.primitive.name, str(each.params.get("name", each.primitive.name))}
        return tuple(sorted(names))


def traced_whole(jax: Any, arguments: Arguments) -> Traced:
    """The program that jax traces for a call with these arguments.

    What the function changes in place, in its arguments or in attributes of the program's own
    objects, is among its results: else what computes it would be left out.
    """
    leaves, tree = jax.tree_util.tree_flatten((arguments.closure, arguments.by_name))
    slots = [slot for leaf in leaves for slot in slots_of(jax, leaf)]
    in_slots = [outlined_slot(jax, slot) for slot in slots]
    held, held_tree = jax.tree_util.tree_flatten(in_slots)
    every = [*leaves, *held]
    dynamic = [
        n for n, leaf in enumerate(every) if isinstance(leaf, Outline) or is_host_array(leaf)
    ]

    def flat(*arrays: Any) -> list[Any]:
        filled = list(every)
        for n, array in zip(dynamic, arrays, strict=True):
            filled[n] = array
        closure, by_name = jax.tree_util.tree_unflatten(tree, filled[: len(leaves)])
        values = jax.tree_util.tree_unflatten(held_tree, filled[len(leaves) :])
        with filled_in(slots, values):
            result = called(arguments, closure, by_name)
            after = [getattr(slot.owner, slot.name) for slot in slots]
        found = jax.tree_util.tree_leaves((result, by_name, after))
        given = {id(array) for array in arrays}
        return [each for each in found if isinstance(each, jax.Array) and id(each) not in given]

    chosen = [every[n] for n in dynamic]
    avals = [leaf.aval(jax) if isinstance(leaf, Outline) else leaf for leaf in chosen]
    closed = jax.make_jaxpr(flat)(*avals)
    if not closed.out_avals:
        raise Unwanted("it returns no arrays, and changes none that can be seen")
    trees = arguments.closure, arguments.by_name, in_slots
    return Traced(closed, chosen, replaced_by(chosen, closed.out_avals), trees)


def replaced_by(leaves: Sequence[Any], results: Sequence[Any]) -> list[int | None]:
    """The first result that looks like it and replaces no other, for each argument: the state of
    the next call, as nearly all steps are written.
    """
    free: dict[Any, list[int]] = {}
    for index, aval in enumerate(results):
        free.setdefault((tuple(aval.shape), str(aval.dtype)), []).append(index)
    found: list[int | None] = []
    for leaf in leaves:
        alike = free.get((tuple(leaf.shape), str(leaf.dtype)), [])
        found.append(alike.pop(0) if alike and isinstance(leaf, Outline) else None)
    return found


def called(arguments: Arguments, closure: Sequence[Any], by_name: Mapping[str, Any]) -> Any:
    """What the function returns."""
    code = arguments.code
    cells = tuple(types.CellType(each) for each in closure)
    function = types.FunctionType(code, arguments.globals, code.co_name, None, cells)
    names = iter(code.co_varnames)
    positional = [by_name[next(names)] for _ in range(code.co_argcount)]
    named = {name: by_name[name] for _ in range(code.co_kwonlyargcount) if (name := next(names))}
    if code.co_flags & inspect.CO_VARARGS:
        positional += by_name[next(names)]
    if code.co_flags & inspect.CO_VARKEYWORDS:
        named |= by_name[next(names)]
    return function(*positional, **named)


def slots_of(jax: Any, leaf: Any) -> list[Slot]:
    """The attributes of an object of the program's own class that hold arrays."""
    if isinstance(leaf, type | types.ModuleType) or not is_own(type(leaf).__module__):
        return []
    return [
        Slot(leaf, name, value)
        for name, value in getattr(leaf, "__dict__", {}).items()
        if any(isinstance(each, jax.Array) for each in jax.tree_util.tree_leaves(value))
    ]


def is_own(module: str) -> bool:
    """Whether a module is the program's own: the script is, whose `__file__` is gone when it has
    ended.
    """
    file = getattr(sys.modules.get(module), "__file__", None)
    return module == "__main__" or bool(file and not LIBRARIES.search(file))


def outlined_slot(jax: Any, slot: Slot) -> Any:
    """Its tree, with outlines in place of arrays, of which some may be deleted."""

    def outline(leaf: Any) -> Any:
        if not isinstance(leaf, jax.Array):
            return leaf
        weak = bool(getattr(leaf.aval, "weak_type", False))
        if not jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return Outline(leaf.shape, leaf.dtype, weak)
        data = jax.random.key_data(leaf)
        name = str(jax.random.key_impl(leaf))
        inner = Outline(data.shape, data.dtype, weak_type=False)
        return Outline(leaf.shape, leaf.dtype, weak, key=name, data=inner)

    return jax.tree_util.tree_map(outline, slot.value)


@contextmanager
def filled_in(slots: Sequence[Slot], values: Sequence[Any]) -> Iterator[None]:
    """Attributes with other values for a while."""
    try:
        for slot, value in zip(slots, values, strict=True):
            setattr(slot.owner, slot.name, value)
        yield
    finally:
        for slot in slots:
            setattr(slot.owner, slot.name, slot.value)
