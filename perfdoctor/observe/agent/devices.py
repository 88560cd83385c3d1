"""The devices that jax computes on."""

from typing import Any

from perfdoctor.schema.surroundings import Device


def devices(jax: Any) -> tuple[Device, ...]:
    """All of the default backend, as `jax.devices()` lists them."""
    return tuple(
        Device(
            id=device.id,
            platform=device.platform,
            kind=device.device_kind,
            memory_bytes=(device.memory_stats() or {}).get("bytes_limit"),
        )
        for device in jax.devices()
    )
