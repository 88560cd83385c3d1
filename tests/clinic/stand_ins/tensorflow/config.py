"""Devices: this stand-in has none to hide."""

from types import SimpleNamespace
from typing import Any


def set_visible_devices(devices: Any, device_type: str | None = None) -> None:
    """Nothing to do."""


experimental = SimpleNamespace(set_visible_devices=set_visible_devices)
