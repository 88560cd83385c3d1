"""Keeps JAX's warnings that bear on performance; the program shows them as it would without us."""

import re
import warnings
from typing import Any

TELLING = re.compile(r"donated buffers were not usable")
"""Warnings of JAX that bear on performance."""


class MessageWatch:
    """Stands before `warnings.showwarning`."""

    def __init__(self) -> None:
        self.messages: dict[str, None] = {}
        self._show = warnings.showwarning

    def __call__(self, message: Warning | str, *details: Any, **more: Any) -> None:
        text = str(message)
        if TELLING.search(text):
            self.messages[text] = None
        self._show(message, *details, **more)

    def install(self) -> None:
        """Listen from now on."""
        warnings.showwarning = self

    def remove(self) -> None:
        """No longer; where another one has taken its place since, that one stays."""
        if warnings.showwarning is self:
            warnings.showwarning = self._show
