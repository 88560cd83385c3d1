"""Hyperparameters: accepted and dropped."""

from typing import Any


def hparams(hparams: dict[str, Any]) -> None:
    """Nothing to do."""
