"""Tables from strings to numbers."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


class KeyValueTensorInitializer:
    """What a table holds."""

    def __init__(self, keys: Sequence[Any], values: Sequence[Any], **dtypes: Any) -> None:
        self.pairs = dict(zip(keys, values, strict=True))


class StaticHashTable:
    """A table that does not change."""

    def __init__(self, initializer: KeyValueTensorInitializer, default_value: Any) -> None:
        self._pairs = initializer.pairs
        self._default = default_value

    def lookup(self, keys: Any) -> npt.NDArray[Any]:
        """The value of each key."""
        return np.array([self._pairs.get(key, self._default) for key in keys], np.int64)
