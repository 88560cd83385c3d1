"""What a workload hands over: refused in a sentence where a loop can't go on with it."""

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from perfdoctor.schema.calls import shared_lengths
from perfdoctor.targets.workload_object.finding import Refused, a

NUMBERS = (bool, int, float, complex, np.generic)
"""Kinds of numbers that are no arrays."""
TEXT = (str, bytes)
"""Kinds of texts, which a step can't take."""


def is_array(leaf: Any) -> bool:
    """Whether it is an array of jax, a key among them, or of NumPy."""
    return isinstance(leaf, jax.Array | np.ndarray)


def check_tree(tree: Any, what: str, name: str) -> None:
    """Refuse what JAX does not know as a tree of arrays. `what`: who gave it."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if is_array(leaf) or isinstance(leaf, (*NUMBERS, *TEXT)) or callable(leaf):
            continue
        where = f" with {a(leaf)} at {jax.tree_util.keystr(path)}" if path else f" {a(leaf)}"
        given = f"{what} gave {a(tree)}{where}" if path else f"{what} gave{where}"
        raise Refused(
            f"{name}: {given}, which JAX does not know as a pytree; expected arrays in tuples, "
            "lists, dicts or registered classes (jax.tree_util.register_dataclass)"
        )


def state_and_metrics(result: Any, name: str) -> tuple[Any, Any]:
    """The two that a step returns."""
    if not isinstance(result, tuple) or len(result) != 2:
        count = f" of {len(result)}" if isinstance(result, tuple) else ""
        raise Refused(f"{name}: step() gave {a(result)}{count}; expected (state, metrics)")
    return result


def check_same_shapes(old: Mapping[str, str], new: Mapping[str, str], name: str) -> None:
    """Refuse a state to which the second step gives other shapes; the first may complete it."""
    for where in [*new, *old]:
        if old.get(where) != new.get(where):
            was, now = old.get(where, "nothing"), new.get(where, "nothing")
            raise Refused(
                f"{name}: the second step() changed the state's {where or 'array'} from {was} to "
                f"{now}; expected a state whose shapes stay, or each step is compiled anew"
            )


def shapes_of(tree: Any) -> dict[str, str]:
    """By path: float32[3, 4]."""
    return {
        jax.tree_util.keystr(path): f"{leaf.dtype}{list(leaf.shape)}"
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
        if is_array(leaf)
    }


def examples_of(batch: Any) -> int | None:
    """How many examples a batch has, by the axis that its arrays share; None if by none."""
    arrays = [leaf for leaf in jax.tree.leaves(batch) if is_array(leaf) and leaf.ndim]
    common = shared_lengths([(leaf.shape, leaf.nbytes) for leaf in arrays])
    return common[0] if common else None


Mark = tuple[tuple[int, ...], str, int]


def marks_of(batch: Any) -> list[Mark | None]:
    """Of each leaf that is a host array: by what its values are known again; a program may fill
    the same array anew.
    """
    return [
        (leaf.shape, str(leaf.dtype), zlib.crc32(np.ascontiguousarray(leaf).data.cast("B")))
        if isinstance(leaf, np.ndarray) and leaf.size and not leaf.dtype.hasobject
        else None
        for leaf in jax.tree.leaves(batch)
    ]


def alike(one: Sequence[Mark | None], other: Sequence[Mark | None]) -> set[int]:
    """The numbers of the leaves of two batches that hold the same."""
    pairs = enumerate(zip(one, other, strict=False))
    return {number for number, (a_mark, b_mark) in pairs if a_mark and a_mark == b_mark}


def holds_host_arrays(state: Any) -> bool:
    """Whether it is copied to the device by each step, in part at least."""
    return any(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(state))
