"""`perfdoctor compare`."""

from pathlib import Path
from typing import Annotated

import typer

from perfdoctor.cli.bench import Format, Inconclusive, exit_code, rendered
from perfdoctor.cli.options import Output, Threshold
from perfdoctor.cli.output import is_on_screen, write


def command(
    before: Annotated[Path, typer.Argument(metavar="A.json", help="The baseline.")],
    after: Annotated[Path, typer.Argument(metavar="B.json", help="The candidate.")],
    threshold: Threshold = "5%",  # type: ignore[assignment]  # typer parses the default too
    on_inconclusive: Annotated[
        Inconclusive,
        typer.Option(help="Exit with 3, or with 0, where the numbers decide nothing."),
    ] = Inconclusive.fail,
    format: Annotated[Format, typer.Option(help="How to write the result.")] = Format.terminal,
    output: Output = None,
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

    if output is not None:
        check_folder(output)
    baseline, candidate = read_benchmark(before), read_benchmark(after)
    comparison = with_saved(baseline, candidate, str(before), threshold)
    found = replace(candidate, comparison=comparison)
    text = rendered(found, format, to_screen=is_on_screen(output))
    write(text, output)
    raise typer.Exit(exit_code(comparison.verdict, on_inconclusive))
