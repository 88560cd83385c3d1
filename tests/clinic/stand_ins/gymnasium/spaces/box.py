"""Arrays between bounds."""

from dataclasses import dataclass
from typing import Any


@dataclass
class Box:
    """Bounds, shape and type."""

    low: Any
    high: Any
    shape: tuple[int, ...]
    dtype: Any
