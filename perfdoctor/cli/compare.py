"""`perfdoctor compare`."""

from pathlib import Path
from typing import Annotated

import typer

from perfdoctor.cli.bench import Inconclusive, exit_code
from perfdoctor.cli.options import Output, Quiet, Threshold, format_option
from perfdoctor.cli.output import screen, write
from perfdoctor.report.formats import BENCHMARK, TERMINAL


def command(
    before: Annotated[Path, typer.Argument(metavar="A.json", help="The baseline.")],
    after: Annotated[Path, typer.Argument(metavar="B.json", help="The candidate.")],
    threshold: Threshold = "5%",  # type: ignore[assignment]  # typer parses the default too
    on_inconclusive: Annotated[
        Inconclusive,
        typer.Option(
            help="Whether no verdict fails (exit code 3), or passes with a warning or without (0)."
        ),
    ] = Inconclusive.fail,
    format: Annotated[str, format_option(tuple(BENCHMARK), "the result")] = TERMINAL,
    output: Output = None,
    quiet: Quiet = False,
) -> None:
    """Compare two results that `perfdoctor bench --save` kept, by their numbers alone.

    Two sessions differ by more than their launches show, so only large changes can be told; live
    pairs (`perfdoctor bench --against`) see far smaller ones.

    Exit codes: 0 no slower, 1 slower, 2 wrong usage, 3 no verdict.
    """
    from msgspec.structs import replace

    from perfdoctor.bench.against import read_benchmark
    from perfdoctor.bench.saved import with_saved
    from perfdoctor.files import check_folder
    from perfdoctor.report.formats import rendered

    if output is not None:
        check_folder(output)
    baseline, candidate = read_benchmark(before), read_benchmark(after)
    comparison = with_saved(baseline, candidate, str(before), threshold)
    found = replace(candidate, comparison=comparison)
    write(rendered(found, format, screen(output, quiet=quiet)), output)
    raise typer.Exit(exit_code(comparison.verdict, on_inconclusive))
