"""`perfdoctor report`."""

from pathlib import Path
from typing import Annotated

import typer

from perfdoctor.cli.options import Open, Output, Quiet, Verbose, format_option
from perfdoctor.cli.output import open_page, page_to_open, screen, write
from perfdoctor.cli.repository import in_repository
from perfdoctor.report.formats import ALL, TERMINAL


def command(
    saved: Annotated[
        list[Path],
        typer.Argument(
            metavar="SAVED…",
            help="A report (`check --format json`), an observation (`check --save-observation`) "
            "or a benchmark (`bench --save`); two of them are laid side by side.",
        ),
    ],
    format: Annotated[str, format_option(ALL, "it")] = TERMINAL,
    output: Output = None,
    open_: Open = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> None:
    """Write again what was saved, in any format; of two, what changed from one to the other.

    Exit codes: 0 written, 2 wrong usage or a file that can't be read.
    """
    from perfdoctor.files import check_folder
    from perfdoctor.report.formats import rendered
    from perfdoctor.saved import compared, read
    from perfdoctor.schema.errors import UsageError
    from perfdoctor.schema.report import Report

    if open_:
        output = page_to_open(format, output)
    if output is not None:
        check_folder(output)
    if len(saved) > 2:
        raise UsageError(f"{len(saved)} files; expected one, or two to lay side by side")
    told = read(saved[0]) if len(saved) == 1 else compared(*saved)
    told, links = in_repository(told) if isinstance(told, Report) else (told, {})
    shown = screen(output, links, quiet=quiet, verbose=verbose)
    write(rendered(told, format, shown), output)
    if open_ and output is not None:
        open_page(output)
