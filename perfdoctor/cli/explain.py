"""`perfdoctor explain`."""

from typing import Annotated

import typer


def command(
    id: Annotated[str | None, typer.Argument(help="A check's id; without one, all ids.")] = None,
) -> None:
    """Say what a check finds, why it costs, how it is measured and how to fix it."""
    from perfdoctor.catalogue import checks, find
    from perfdoctor.cli import listing

    if id is None:
        listing.command()
        return
    print(f"{id}: {find(checks(), id).documentation.strip()}")
