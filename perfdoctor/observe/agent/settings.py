"""JAX's settings in force, as plain data."""

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
