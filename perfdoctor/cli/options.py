"""Options that several commands share, and the kinds of their values."""

import re
from pathlib import Path
from typing import Annotated

import typer


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


Arguments = Annotated[
    list[str] | None,
    typer.Argument(metavar="[-- ARGS…]", help="The script's own arguments, after --."),
]
Module = Annotated[
    str | None,
    typer.Option("-m", metavar="MODULE", help="Run a module, as `python -m MODULE` does."),
]
Budget = Annotated[
    float, typer.Option(min=5, metavar="SECONDS", help="Time for the whole command.")
]
Output = Annotated[Path | None, typer.Option(help="Write it there instead of stdout.")]
Threshold = Annotated[
    float,
    typer.Option(parser=percent, metavar="PERCENT", help="A slowdown of less than this passes."),
]
