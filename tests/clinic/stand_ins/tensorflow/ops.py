"""Operations, eager, on NumPy's arrays."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def cast(value: Any, dtype: Any) -> Array:
    """In another type."""
    return np.asarray(value, dtype)


def concat(values: Sequence[Any], axis: int) -> Array:
    """One after the other."""
    return np.concatenate([np.asarray(each) for each in values], axis)


def cond(predicate: Any, true_fn: Callable[[], Any], false_fn: Callable[[], Any]) -> Any:
    """One of two."""
    return true_fn() if predicate else false_fn()


def while_loop(
    cond: Callable[..., Any],
    body: Callable[..., Any],
    loop_vars: Sequence[Any],
    shape_invariants: Any = None,
    maximum_iterations: Any = None,
) -> Any:
    """Repeats the body."""
    state, count = tuple(loop_vars), 0
    while (maximum_iterations is None or count < maximum_iterations) and cond(*state):
        state, count = tuple(body(*state)), count + 1
    return state


def cumsum(value: Any, axis: int = 0) -> Array:
    """Running sums."""
    return np.asarray(np.cumsum(value, axis, dtype=np.asarray(value).dtype))


def equal(one: Any, two: Any) -> Any:
    """Element by element."""
    return np.equal(one, two)


def not_equal(one: Any, two: Any) -> Any:
    """Element by element."""
    return np.not_equal(one, two)


def less(one: Any, two: Any) -> Any:
    """Element by element."""
    return np.less(one, two)


def less_equal(one: Any, two: Any) -> Any:
    """Element by element."""
    return np.less_equal(one, two)


def logical_and(one: Any, two: Any) -> Any:
    """Element by element."""
    return np.logical_and(one, two)


def maximum(one: Any, two: Any) -> Any:
    """Element by element."""
    return np.maximum(one, two)


def expand_dims(value: Any, axis: int) -> Array:
    """With one more axis."""
    return np.expand_dims(value, axis)


def squeeze(value: Any, axis: int | None = None) -> Array:
    """Without axes of length 1; a copy, as programs add to it where TensorFlow makes a new one."""
    return np.array(np.squeeze(np.asarray(value), axis))


def fill(dims: Sequence[int], value: Any) -> Array:
    """Everywhere the same."""
    return np.full(tuple(dims), value)


def pad(value: Any, paddings: Any) -> Array:
    """With zeros around it."""
    return np.pad(value, np.asarray(paddings))


def range(stop: Any) -> Array:
    """From 0 on."""
    return np.arange(stop, dtype=np.int32)


def reduce_sum(value: Any, axis: int | None = None) -> Any:
    """The sum, in the type of the elements."""
    return np.sum(value, axis, dtype=np.asarray(value).dtype)


def reshape(value: Any, shape: Any) -> Array:
    """In another shape."""
    return np.reshape(value, tuple(shape))


def transpose(value: Any) -> Array:
    """Axes in reverse."""
    return np.transpose(value)


def shape(value: Any) -> Array:
    """Lengths of the axes."""
    return np.asarray(np.shape(value), dtype=np.int32)


def size(value: Any) -> Any:
    """The number of elements."""
    return np.int32(np.size(value))


def zeros(shape: Any, dtype: Any = np.float32) -> Array:
    """Zeros."""
    return np.zeros(tuple(shape), dtype)


def zeros_like(value: Any) -> Array:
    """Zeros in the same shape and type."""
    return np.zeros_like(value)


class TensorArray:
    """A list of tensors that grows."""

    def __init__(self, dtype: Any, **options: Any) -> None:
        self._dtype = dtype
        self._values: list[Array] = []

    def size(self) -> int:
        """How many there are."""
        return len(self._values)

    def write(self, index: int, value: Any) -> "TensorArray":
        """With one more, at the end."""
        assert index == len(self._values), "this stand-in only appends"
        self._values.append(np.asarray(value, self._dtype))
        return self

    def stack(self) -> Array:
        """All in one."""
        return np.stack(self._values)
