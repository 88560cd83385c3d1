"""What calls were made with, without its values: of a program that ends before a step is saved."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from perfdoctor.injection.calls import Function
from perfdoctor.observe.agent.form import kind_of

NOTED = 2
"""Calls of each function that are noted: the first one may be given what no call has returned."""
SPREAD = 0.1
"""The standard deviation of values that are made up, so that results stay finite."""


@dataclass(frozen=True)
class Shape:
    """An array among the arguments, without its values."""

    kind: str
    shape: tuple[int, ...]
    dtype: Any
    sharding: Any
    size_bytes: int
    key: Any = None
    """Of an array of random keys: how they are made."""


class Shapes:
    """The arguments of an early call of each function."""

    def __init__(self, jax: Any) -> None:
        self._jax = jax
        self._times: Counter[int] = Counter()
        self._noted: dict[int, tuple[Function, Any]] = {}
        """By the function's number."""

    def note(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Keep the shapes of a call, if it is one of the first of its function."""
        self._times[function.number] += 1
        if self._times[function.number] > NOTED:
            return
        try:
            shapes = self._jax.tree_util.tree_map(self._shape_of, (args, kwargs))
            self._noted[function.number] = function, shapes
        except Exception:  # what can't be looked at can't be made up either
            self._noted.pop(function.number, None)

    @property
    def noted(self) -> list[tuple[Function, Any]]:
        """The functions, and the shapes of their arguments."""
        return list(self._noted.values())

    def size_bytes(self, calls: Sequence[tuple[Function, Any]]) -> int:
        """Of all arrays that some calls take."""
        leaves = self._jax.tree_util.tree_leaves([shapes for _, shapes in calls])
        return sum(each.size_bytes for each in leaves if isinstance(each, Shape))

    def made_up(self, shapes: Any) -> Any:
        """Arguments of these shapes: positional ones, and those by name."""
        return self._jax.tree_util.tree_map(self._values, shapes)

    def _shape_of(self, leaf: Any) -> Any:
        if not hasattr(leaf, "dtype") or isinstance(leaf, type):  # jnp.float32 has one, too
            return leaf
        kind = kind_of(self._jax, leaf)
        return Shape(
            kind=kind,
            shape=tuple(leaf.shape),
            dtype=leaf.dtype,
            sharding=getattr(leaf, "sharding", None),
            size_bytes=int(leaf.nbytes),
            key=self._jax.random.key_impl(leaf) if kind == "key" else None,
        )

    def _values(self, leaf: Any) -> Any:
        """Normally distributed; zeros, where they are no floating-point numbers, for they may be
        indices.
        """
        if not isinstance(leaf, Shape):
            return leaf
        if leaf.kind == "key":
            some = self._jax.random.key(0, impl=leaf.key)
            return self._jax.random.split(some, leaf.shape) if leaf.shape else some
        import numpy

        values = numpy.zeros(leaf.shape, leaf.dtype)
        if self._jax.dtypes.issubdtype(leaf.dtype, numpy.inexact):
            noise = numpy.random.default_rng(0).standard_normal(leaf.shape)
            values = (SPREAD * noise).astype(leaf.dtype)
        return values if leaf.sharding is None else self._jax.device_put(values, leaf.sharding)
