"""`perfdoctor schema`."""

import json
import sys
from typing import Annotated

import typer

from perfdoctor.cli.options import one_of

KINDS = ("report", "observation", "benchmark", "difference")
"""The kinds of files that have a JSON Schema."""


def command(
    kind: Annotated[
        str,
        typer.Argument(
            parser=one_of(KINDS),
            metavar="|".join(KINDS),
            autocompletion=lambda: list(KINDS),
            help="What the schema is of.",
        ),
    ] = "report",
) -> None:
    """Print the JSON Schema of what perfdoctor writes."""
    from perfdoctor.schema.published import json_schema

    sys.stdout.write(json.dumps(json_schema(kind), indent=2) + "\n")
