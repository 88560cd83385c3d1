"""JAX's settings in force, as plain data."""

from collections.abc import Iterable, Mapping
from typing import Any

OURS = ("jax_explain_cache_misses", "jax_dump_ir_to", "jax_dump_ir_modes")
"""Made by the observation itself."""
DEVICE = "jax_default_device"
"""Its value may be an object of JAX; it is kept by its name."""
Value = bool | int | float | str | None


def settings(jax: Any) -> dict[str, Value]:
    """The settings whose values are plain data, without those that we made ourselves."""
    values = dict(jax.config.values)
    if values.get(DEVICE) is not None:
        values[DEVICE] = str(values[DEVICE])
    return {
        name: value
        for name, value in values.items()
        if name not in OURS and isinstance(value, Value)
    }


def in_context(
    everywhere: Mapping[str, Value], in_calls: Iterable[Mapping[str, Value]]
) -> dict[str, Value]:
    """The settings that all calls were made with and other threads have not: those of a context,
    `with jax.disable_jit():`, which are of the thread that enters it.
    """
    first, *others = [*in_calls] or [everywhere]
    return {
        name: value
        for name, value in first.items()
        if value != everywhere.get(name) and all(each.get(name) == value for each in others)
    }
