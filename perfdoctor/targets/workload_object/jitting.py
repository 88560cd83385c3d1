"""A workload's step as one jitted function, whatever it is made of."""

from collections.abc import Callable, Hashable
from typing import Any

import jax

from perfdoctor.targets.workload_object.results import NUMBERS, is_array

Step = Callable[[Any, Any], Any]


def jitted(step: Step, *, donates: bool) -> Step:
    """The step as `jax.jit(step, donate_argnums=0)` makes it, or without donation.

    What is no array, the functions of a model say, is left out of the trace, as the libraries'
    own wrappers do; it is traced anew where that changes.
    """
    programs: dict[Hashable, Program] = {}

    def call(state: Any, batch: Any) -> Any:
        arrays, others, trees = zip(*(split(each) for each in (state, batch)), strict=True)
        key = (others, trees)
        if key not in programs:
            programs[key] = Program(step, others, trees, donates=donates)
        return programs[key](*arrays)

    return call


class Program:
    """The step for states and batches that are alike but for their arrays."""

    def __init__(self, step: Step, others: Any, trees: Any, *, donates: bool) -> None:
        self._step, self._others, self._trees = step, others, trees
        self._out: tuple[Any, Any] | None = None
        self._run = jax.jit(self._traced, donate_argnums=(0,) if donates else ())

    def __call__(self, state: list[Any], batch: list[Any]) -> Any:
        arrays = self._run(state, batch)
        assert self._out is not None
        return joined(arrays, *self._out)

    def _traced(self, state: list[Any], batch: list[Any]) -> list[Any]:
        parts = zip((state, batch), self._others, self._trees, strict=True)
        arrays, *self._out = split(self._step(*(joined(*each) for each in parts)))  # type: ignore[assignment]
        return arrays


def split(tree: Any) -> tuple[list[Any], tuple[Any, ...], Any]:
    """Arrays and numbers, with None where there is something else; that, in the same way; and the
    tree's structure.
    """
    leaves, structure = jax.tree.flatten(tree)
    dynamic = [is_array(leaf) or isinstance(leaf, NUMBERS) for leaf in leaves]
    arrays = [leaf if one else None for leaf, one in zip(leaves, dynamic, strict=True)]
    others = tuple(None if one else leaf for leaf, one in zip(leaves, dynamic, strict=True))
    return arrays, others, structure


def joined(arrays: list[Any], others: tuple[Any, ...], structure: Any) -> Any:
    """The tree again."""
    leaves = [
        other if array is None else array for array, other in zip(arrays, others, strict=True)
    ]
    return structure.unflatten(leaves)


def owned(state: Any) -> Any:
    """A copy, whose arrays nobody else holds: they can be donated."""
    return jax.tree.map(lambda leaf: leaf.copy() if isinstance(leaf, jax.Array) else leaf, state)
