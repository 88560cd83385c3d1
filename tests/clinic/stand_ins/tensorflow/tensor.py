"""Tensors: arrays that know `numpy()`; shapes and specifications."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


class Tensor(np.ndarray):
    """An array with TensorFlow's way back to NumPy."""

    def numpy(self) -> Any:
        """The plain array; a string as bytes."""
        return plain(self)

    _numpy = numpy


class RaggedTensor:
    """Only its name."""


class SparseTensor:
    """Only its name."""


def tensor(value: Any) -> Tensor:
    """Any value as a tensor."""
    return np.asarray(value).view(Tensor)


def plain(value: Any) -> Any:
    """A tensor as NumPy's array; a string as bytes."""
    array = np.asarray(value)
    return array.item() if array.dtype == object and array.ndim == 0 else array


class TensorShape:
    """Lengths of the axes, of which None are unknown; None for all: not even their number."""

    def __init__(self, dims: Sequence[int | None] | None) -> None:
        self.dims = None if dims is None else tuple(dims)

    def is_compatible_with(self, other: "TensorShape") -> bool:
        """Whether one shape can be both."""
        if self.dims is None or other.dims is None:
            return True
        pairs = zip(self.dims, other.dims, strict=False)
        same = all(one is None or two is None or one == two for one, two in pairs)
        return len(self.dims) == len(other.dims) and same


@dataclass(frozen=True)
class TensorSpec:
    """Shape and type of what a data set yields."""

    shape: Any
    dtype: Any = None
