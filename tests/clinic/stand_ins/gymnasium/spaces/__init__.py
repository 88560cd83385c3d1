"""Spaces of observations."""

from .box import Box

__all__ = ["Box"]
