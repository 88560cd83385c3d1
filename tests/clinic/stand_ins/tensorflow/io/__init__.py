"""Files, and strings as numbers."""

from typing import Any

import numpy as np
import numpy.typing as npt

from . import gfile

__all__ = ["decode_raw", "gfile"]


def decode_raw(strings: Any, dtype: Any) -> npt.NDArray[Any]:
    """The bytes of strings of equal length; [strings, numbers of each]."""
    array = np.asarray(strings)
    return np.frombuffer(array.tobytes(), dtype).reshape(*array.shape, -1)
