"""Strings."""

from typing import Any

import numpy as np
import numpy.typing as npt

from .tensor import plain


def unicode_split(text: Any, encoding: str) -> npt.NDArray[Any]:
    """The characters of an ASCII text."""
    return np.frombuffer(plain(text), "S1")
