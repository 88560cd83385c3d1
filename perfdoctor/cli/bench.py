"""`perfdoctor bench`."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfdoctor.cli.options import Arguments, Budget, Module, Output, Threshold
from perfdoctor.cli.output import PIPED_WIDTH, is_on_screen, output_width, write

if TYPE_CHECKING:
    from perfdoctor.schema.benchmark import Benchmark


PASS, REGRESSED, NO_VERDICT = 0, 1, 3


class Format(StrEnum):
    """How the numbers are written."""

    terminal = "terminal"
    json = "json"
    markdown = "markdown"
    junit = "junit"
    github = "github"
    action = "customSmallerIsBetter"
    bmf = "bmf"


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
            help="Your script (.py) or a workload file (.toml); without one, the built-in "
            "reference training loop."
        ),
    ] = None,
    arguments: Arguments = None,
    module: Module = None,
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
        typer.Option(help="Exit with 3, or with 0, where the budget decides nothing."),
    ] = Inconclusive.fail,
    budget: Budget = 120,
    save: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Keep the numbers, and all that is needed to measure them again."
        ),
    ] = None,
    history: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Keep the result there too, beside those of before, and show how they change.",
        ),
    ] = None,
    script_output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Where the output of the script's first run goes, not to stderr."
        ),
    ] = None,
    format: Annotated[Format, typer.Option(help="How to write the numbers.")] = Format.terminal,
    output: Output = None,
) -> None:
    """Measure a training run: step time, compilation, memory, over several fresh launches.

    A script is launched several times, and may overwrite what an earlier launch wrote.

    Exit codes: 0 measured, or no slower than the baseline; 1 slower; 2 wrong usage; 3 no verdict.
    """
    from perfdoctor.bench import road
    from perfdoctor.cli.progress import progress
    from perfdoctor.files import check_folder

    for file in (output, save, script_output, history and history / "any"):
        if file is not None:
            check_folder(file)
    request = road.Request(
        target=target,
        module=module,
        arguments=tuple(arguments or ()),
        budget_s=budget,
        script_output=script_output,
        against=against,
        threshold=threshold,
        save=save,
    )
    own_output = request.runs_script and script_output is None
    with progress(budget, beside_output=own_output) as say:
        found = road.bench(request, context.obj, say)
    text = rendered(found, format, to_screen=is_on_screen(output))
    if history is not None:
        shown = trends_with(found, history)
        text += shown if format is Format.terminal else ""
    write(text, output)
    if found.comparison is not None:
        raise typer.Exit(exit_code(found.comparison.verdict, on_inconclusive))


def trends_with(benchmark: "Benchmark", folder: Path) -> str:
    """How the metrics changed up to this result, which is kept beside the others."""
    from perfdoctor.bench.history import append, comparable, results, trend
    from perfdoctor.report.benchmark import trends

    append(folder, benchmark)
    kept = comparable(results(folder), benchmark)
    found = [trend(kept, metric) for metric in trends.SHOWN]
    return trends.render([each for each in found if each is not None])


def rendered(benchmark: "Benchmark", format: Format, *, to_screen: bool) -> str:
    """The numbers as text."""
    from perfdoctor.report.benchmark import action, bmf, github, json, junit, markdown, terminal

    if format is Format.terminal:
        width = output_width() if to_screen else PIPED_WIDTH
        return terminal.render(benchmark, width=width, colour=to_screen)
    renderers = {
        Format.json: json.render,
        Format.markdown: markdown.render,
        Format.junit: junit.render,
        Format.github: github.render,
        Format.action: action.render,
        Format.bmf: bmf.render,
    }
    return renderers[format](benchmark)


def exit_code(verdict: str, on_inconclusive: Inconclusive) -> int:
    """Of a comparison."""
    if verdict == "regressed":
        return REGRESSED
    if verdict == "incomparable":
        return NO_VERDICT
    if verdict == "inconclusive":
        if on_inconclusive is Inconclusive.warn:
            print("perfdoctor: inconclusive, which is allowed here", file=sys.stderr)
        return NO_VERDICT if on_inconclusive is Inconclusive.fail else PASS
    return PASS
