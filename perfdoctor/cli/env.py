"""`perfdoctor env`."""

from enum import StrEnum
from typing import Annotated

import typer


class Format(StrEnum):
    """How the answer is written."""

    terminal = "terminal"
    json = "json"


def command(
    context: typer.Context,
    format: Annotated[Format, typer.Option(help="How to write it.")] = Format.terminal,
    budget: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="Time for jax to list its devices.")
    ] = 60,
) -> None:
    """Show this machine as the checks see it: cores, limits, devices, libraries, settings."""
    from perfdoctor.cli.progress import progress
    from perfdoctor.observe.machine import machine
    from perfdoctor.report import machine as written

    with progress(budget) as say:
        say("asking jax for its devices")
        seen = machine(context.obj, budget)
    print(written.as_json(seen) if format is Format.json else written.as_text(seen), end="")
