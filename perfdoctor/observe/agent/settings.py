"""JAX's settings in force, as plain data."""

from typing import Any

OURS = ("jax_explain_cache_misses", "jax_dump_ir_to", "jax_dump_ir_modes")
"""Made by the observation itself."""
Value = bool | int | float | str | None


def settings(jax: Any) -> dict[str, Value]:
    """The settings whose values are plain data, without those that we made ourselves."""
    return {
        name: value
        for name, value in jax.config.values.items()
        if name not in OURS and isinstance(value, Value)
    }
