"""`perfdoctor bench`."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfdoctor.cli.options import (
    Arguments,
    Budget,
    Module,
    Open,
    Output,
    Quiet,
    Sample,
    Threshold,
    format_option,
    target_or_sample,
)
from perfdoctor.cli.output import open_page, page_to_open, screen, write
from perfdoctor.report.formats import BENCHMARK, TERMINAL

if TYPE_CHECKING:
    from perfdoctor.schema.benchmark import Benchmark


PASS, REGRESSED, NO_VERDICT = 0, 1, 3
"""Exit codes; those of the whole command line are in the documentation."""


class Inconclusive(StrEnum):
    """What a comparison that nothing decided amounts to."""

    fail = "fail"
    warn = "warn"
    allowed = "pass"


def command(
    context: typer.Context,
    target: Annotated[
        str | None,
        typer.Argument(
            help="Your script (.py), your workload object (package.module:name) or a workload "
            "file (.toml); without one, the built-in reference training loop."
        ),
    ] = None,
    arguments: Arguments = None,
    module: Module = None,
    sample: Sample = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|git:REF|TARGET",
            help="Compare with another commit, another target, or numbers that --save kept.",
        ),
    ] = None,
    threshold: Threshold = "5%",  # type: ignore[assignment]  # typer parses the default too
    on_inconclusive: Annotated[
        Inconclusive,
        typer.Option(
            help="Whether no verdict within the budget fails (exit code 3), or passes (0), with a "
            "warning or without."
        ),
    ] = Inconclusive.fail,
    budget: Budget = 120,
    save: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Save the numbers there, and all that is needed to measure them again.",
        ),
    ] = None,
    history: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Also save the result there, with earlier ones, and show how the numbers changed.",
        ),
    ] = None,
    script_output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the output of the script's first run there instead of to stderr.",
        ),
    ] = None,
    format: Annotated[str, format_option(tuple(BENCHMARK), "the numbers")] = TERMINAL,
    output: Output = None,
    open_: Open = False,
    quiet: Quiet = False,
) -> None:
    """Measure a training run: step time, compilation, memory, over several fresh launches.

    A script is launched several times, and may overwrite what an earlier launch wrote.

    Exit codes: 0 measured, or no slower than the baseline; 1 slower; 2 wrong usage; 3 no verdict.
    """
    from perfdoctor.bench import pipeline
    from perfdoctor.cli.progress import progress
    from perfdoctor.files import check_folder
    from perfdoctor.report.benchmark import trends
    from perfdoctor.report.formats import rendered

    if open_:
        output = page_to_open(format, output)
    for file in (output, save, script_output, history and history / "any"):
        if file is not None:
            check_folder(file)
    request = pipeline.Request(
        target=target_or_sample(target, sample),
        module=module,
        arguments=tuple(arguments or ()),
        budget_s=budget,
        script_output=script_output,
        against=against,
        threshold=threshold,
        save=save,
    )
    own_output = request.runs_users_code and script_output is None
    with progress(budget, beside_output=own_output) as say:
        found = pipeline.bench(request, context.obj, say)
    if history is not None:
        found = with_trends(found, history)
    text = rendered(found, format, screen(output, quiet=quiet))
    if found.trends and format == TERMINAL:
        text += trends.render(found.trends)
    write(text, output)
    if open_ and output is not None:
        open_page(output)
    if found.comparison is not None:
        raise typer.Exit(exit_code(found.comparison.verdict, on_inconclusive))


def with_trends(benchmark: "Benchmark", folder: Path) -> "Benchmark":
    """The benchmark with how its metrics changed up to this result, which is kept beside the
    others.
    """
    from msgspec.structs import replace

    from perfdoctor.bench.history import append, comparable, results, trend
    from perfdoctor.report.benchmark.trends import SHOWN

    append(folder, benchmark)
    kept = comparable(results(folder), benchmark)
    found = [trend(kept, metric) for metric in SHOWN]
    return replace(benchmark, trends=tuple(each for each in found if each is not None))


def exit_code(verdict: str, on_inconclusive: Inconclusive) -> int:
    """The exit code that a comparison's verdict amounts to."""
    if verdict == "regressed":
        return REGRESSED
    if verdict == "incomparable":
        return NO_VERDICT
    if verdict == "inconclusive":
        if on_inconclusive is Inconclusive.warn:
            print("perfdoctor: inconclusive, which is allowed here", file=sys.stderr)
        return NO_VERDICT if on_inconclusive is Inconclusive.fail else PASS
    return PASS
