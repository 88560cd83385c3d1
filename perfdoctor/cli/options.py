"""Kinds of option values that several commands share."""

import re
import sys

import typer

PIPED_WIDTH = 100


def percent(text: str) -> float:
    """5% (or 0.05) as 0.05."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(%?)", str(text))
    number = float(found[1]) / (100 if found[2] else 1) if found else -1.0
    if not 0 <= number < 10:
        raise typer.BadParameter(f"{text!r} is no gain; expected a percentage such as 5%")
    return number


def identifiers(text: str) -> tuple[str, ...]:
    """The names in a list separated by commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def output_width() -> int:
    """Columns for what goes to stdout: of the terminal, within reason; fixed in a pipe."""
    import shutil

    if not sys.stdout.isatty():
        return PIPED_WIDTH
    return max(60, min(140, shutil.get_terminal_size().columns))
