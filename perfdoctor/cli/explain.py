"""`perfdoctor explain`."""

import sys
from typing import Annotated

import typer

from perfdoctor.cli.options import check_ids


def command(
    id: Annotated[
        str | None,
        typer.Argument(autocompletion=check_ids, help="A check's id; without one, all ids."),
    ] = None,
) -> None:
    """Say what a check finds, why it costs, how it is measured and fixed, and what is here."""
    from perfdoctor.catalogue import checks, find
    from perfdoctor.cli import listing
    from perfdoctor.observe.machine import unobserved
    from perfdoctor.report.catalogue import explanation

    if id is None:
        listing.command()
        return
    check = find(checks(), id)
    sys.stdout.write(explanation(id, check.documentation, check.here(unobserved())))
