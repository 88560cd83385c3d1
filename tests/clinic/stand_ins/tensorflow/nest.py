"""Structures of dictionaries, tuples and lists."""

from collections.abc import Callable
from typing import Any


def map_structure(function: Callable[..., Any], structure: Any, *others: Any) -> Any:
    """The same structure with a function applied to each leaf."""
    if isinstance(structure, dict):
        return {
            key: map_structure(function, value, *(other[key] for other in others))
            for key, value in structure.items()
        }
    if isinstance(structure, (tuple, list)):
        rows = zip(structure, *others, strict=True)
        values = [map_structure(function, *row) for row in rows]
        make = getattr(structure, "_make", type(structure))
        return make(values)
    return function(structure, *others)
