"""`perfdoctor check`."""

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
    Verbose,
    check_ids,
    format_option,
    identifiers,
    percent,
    target_or_sample,
)
from perfdoctor.cli.output import open_page, page_to_open, screen, write
from perfdoctor.cli.repository import in_repository
from perfdoctor.report.formats import REPORT, TERMINAL

if TYPE_CHECKING:
    from perfdoctor.schema.report import Report

HEALTHY, ISSUES, NO_VERDICT = 0, 1, 3
"""Exit codes."""


def command(
    context: typer.Context,
    target: Annotated[
        str | None,
        typer.Argument(
            help="Your script (.py), your workload object (package.module:name), a workload file "
            "(.toml) or a saved observation (.json); without one, the built-in reference training "
            "loop."
        ),
    ] = None,
    arguments: Arguments = None,
    module: Module = None,
    sample: Sample = None,
    budget: Budget = 120,
    try_fixes: Annotated[
        bool | None,
        typer.Option(
            "--try-fixes/--no-try-fixes",
            help="Measure what each fix gains. On by default, except for a script, which is run "
            "again for this, twice at the same time for each fix, and may overwrite what its first "
            "run wrote.",
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
        typer.Option(metavar="FILE", help="Write the script's output there instead of to stderr."),
    ] = None,
    select: Annotated[
        str,
        typer.Option(
            metavar="IDS", autocompletion=check_ids, help="Only these checks, separated by commas."
        ),
    ] = "",
    ignore: Annotated[
        str,
        typer.Option(
            metavar="IDS",
            autocompletion=check_ids,
            help="All but these checks, separated by commas.",
        ),
    ] = "",
    min_gain: Annotated[
        float,
        typer.Option(
            parser=percent, metavar="PERCENT", help="Report fixes that gain at least this much."
        ),
    ] = "5%",  # type: ignore[assignment]  # typer parses the default too
    format: Annotated[str, format_option(tuple(REPORT), "the report")] = TERMINAL,
    output: Output = None,
    open_: Open = False,
    save_observation: Annotated[
        Path | None,
        typer.Option(help="Save what was observed there; `check FILE` diagnoses it again."),
    ] = None,
    verbose: Verbose = False,
    quiet: Quiet = False,
    exit_zero: Annotated[
        bool, typer.Option("--exit-zero", help="Exit with 0 even if there are issues.")
    ] = False,
) -> None:
    """Diagnose a training run: what slows it down, and what each fix is worth.

    Exit codes: 0 healthy, 1 at least one issue, 2 wrong usage, 3 no verdict: nothing could be
    measured, or a check crashed and the others found nothing.
    """
    from perfdoctor import doctor
    from perfdoctor.cli.progress import progress
    from perfdoctor.files import check_folder
    from perfdoctor.report.formats import rendered

    if open_:
        output = page_to_open(format, output)
    request = doctor.Request(
        target=target_or_sample(target, sample),
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
    own_output = request.runs_users_code and script_output is None
    with progress(budget, beside_output=own_output) as say:
        report, links = in_repository(doctor.check(request, context.obj, say))
    shown = screen(output, links, quiet=quiet, verbose=verbose)
    write(rendered(report, format, shown), output)
    if open_ and output is not None:
        open_page(output)
    raise typer.Exit(exit_code(report, exit_zero=exit_zero))


def exit_code(report: "Report", *, exit_zero: bool) -> int:
    """What the report amounts to; a check that crashed might have found something."""
    if report.findings:
        return HEALTHY if exit_zero else ISSUES
    crashed = any(each.outcome == "crashed" for each in report.checks)
    return NO_VERDICT if crashed or report.steps is None else HEALTHY
