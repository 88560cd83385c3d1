"""Workflow commands of GitHub's runners: lines of a log that become annotations."""

from typing import Literal

Level = Literal["error", "warning", "notice"]
IN_DATA = (("%", "%25"), ("\r", "%0D"), ("\n", "%0A"))
"""Characters that can't stand in the text of a workflow command, and what GitHub has for them."""
IN_PROPERTIES = (*IN_DATA, (":", "%3A"), (",", "%2C"))
"""What GitHub's own toolkit escapes (actions/toolkit, packages/core/src/command.ts)."""


def annotation(level: Level, text: str, **properties: str | int) -> str:
    """A line; `properties`: title, file, line."""
    told = ",".join(
        f"{name}={escaped(str(value), IN_PROPERTIES)}" for name, value in properties.items()
    )
    return f"::{level} {told}::{escaped(text, IN_DATA)}"


def escaped(text: str, marks: tuple[tuple[str, str], ...]) -> str:
    """A text with each of the marks replaced, in their order."""
    for raw, replacement in marks:
        text = text.replace(raw, replacement)
    return text
