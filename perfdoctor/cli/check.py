"""`perfdoctor check`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from perfdoctor.cli.options import Arguments, Budget, Module, Output, identifiers, percent
from perfdoctor.cli.output import PIPED_WIDTH, is_on_screen, output_width, write

HEALTHY, ISSUES, NO_VERDICT = 0, 1, 3


class Format(StrEnum):
    """How the report is written."""

    terminal = "terminal"
    json = "json"


def command(
    context: typer.Context,
    target: Annotated[
        str | None,
        typer.Argument(
            help="Your script (.py), a workload file (.toml) or a saved observation (.json); "
            "without one, the built-in reference training loop."
        ),
    ] = None,
    arguments: Arguments = None,
    module: Module = None,
    budget: Budget = 120,
    try_fixes: Annotated[
        bool | None,
        typer.Option(
            "--try-fixes/--no-try-fixes",
            help="Measure what each fix gains. On, but for a script: it is run again for this, "
            "twice at the same time for each fix, and may overwrite what its first run wrote.",
            show_default=False,
        ),
    ] = None,
    workdir_copy: Annotated[
        bool,
        typer.Option(
            "--workdir-copy",
            help="With --try-fixes, run the script in throw-away copies of the working directory.",
        ),
    ] = False,
    replay: Annotated[
        bool,
        typer.Option(
            "--replay/--no-replay",
            help="Save one step of the run, and measure fixes on it in a process of its own.",
        ),
    ] = True,
    script_output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where the script's output goes instead of stderr."),
    ] = None,
    select: Annotated[
        str, typer.Option(metavar="IDS", help="Only these checks, separated by commas.")
    ] = "",
    ignore: Annotated[
        str, typer.Option(metavar="IDS", help="Not these checks, separated by commas.")
    ] = "",
    min_gain: Annotated[
        float,
        typer.Option(
            parser=percent, metavar="PERCENT", help="Report fixes that gain at least so much."
        ),
    ] = "5%",  # type: ignore[assignment]  # typer parses the default too
    format: Annotated[Format, typer.Option(help="How to write the report.")] = Format.terminal,
    output: Output = None,
    save_observation: Annotated[
        Path | None, typer.Option(help="Keep what was observed; `check FILE` diagnoses it again.")
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="A line for each check.")
    ] = False,
    exit_zero: Annotated[
        bool, typer.Option("--exit-zero", help="Exit with 0 even if there are issues.")
    ] = False,
) -> None:
    """Diagnose a training run: what slows it down, and what each fix is worth.

    Exit codes: 0 healthy, 1 at least one issue, 2 wrong usage, 3 nothing could be measured.
    """
    from perfdoctor import doctor
    from perfdoctor.cli.progress import progress
    from perfdoctor.files import check_folder
    from perfdoctor.report import json, terminal

    request = doctor.Request(
        target=target,
        module=module,
        arguments=tuple(arguments or ()),
        budget_s=budget,
        try_fixes=try_fixes,
        min_gain=min_gain,
        select=identifiers(select),
        ignore=identifiers(ignore),
        save_observation=save_observation,
        script_output=script_output,
        workdir_copy=workdir_copy,
        replays=replay,
    )
    for file in (output, save_observation, script_output):
        if file is not None:
            check_folder(file)
    own_output = request.runs_script and script_output is None
    with progress(budget, beside_output=own_output) as say:
        report = doctor.check(request, context.obj, say)
    if format is Format.json:
        text = json.render(report)
    else:
        to_screen = is_on_screen(output)
        width = output_width() if to_screen else PIPED_WIDTH
        text = terminal.render(report, verbose=verbose, width=width, colour=to_screen)
    write(text, output)
    if report.findings:
        raise typer.Exit(HEALTHY if exit_zero else ISSUES)
    raise typer.Exit(HEALTHY if report.steps else NO_VERDICT)
