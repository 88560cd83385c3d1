"""How the reader of a terminal sees a report."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum


class Detail(IntEnum):
    """How much is told."""

    quiet = 0
    """One line."""
    normal = 1
    verbose = 2
    """A line for each check, and the evidence of each finding."""


@dataclass(frozen=True)
class Screen:
    """What a renderer for terminals has to know of its reader."""

    width: int = 100
    """Columns."""
    colour: bool = False
    """Whether ANSI colours are understood."""
    detail: Detail = Detail.normal
    links: Mapping[str, str] = field(default_factory=dict)
    """URI by place (file:line); empty where the terminal shows no hyperlinks (OSC 8)."""
