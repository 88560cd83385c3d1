"""`perfdoctor workload`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from perfdoctor.cli.options import Arguments, Budget, Module, Output
from perfdoctor.cli.output import write

UNFINISHED = 3
"""The exit code for a draft that does not run yet."""


def command(
    context: typer.Context,
    target: Annotated[str | None, typer.Argument(help="Your script (.py).")] = None,
    arguments: Arguments = None,
    module: Module = None,
    budget: Budget = 90,
    script_output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where the script's output goes instead of stderr."),
    ] = None,
    output: Output = None,
) -> None:
    """Draft a workload module from a script: its step, its state, its batches.

    The script is run once, as `check` runs it. What can't be told from it is made up, which the
    module says. `perfdoctor check workload:workload` tries fixes on it that live in code.

    Exit codes: 0 the draft's first steps run, 2 wrong usage, 3 something is left to be completed,
    or no step was seen.
    """
    from perfdoctor.cli.progress import progress
    from perfdoctor.drafting import pipeline
    from perfdoctor.files import check_folder

    for file in (output, script_output):
        if file is not None:
            check_folder(file)
    request = pipeline.Request(
        script=target,
        module=module,
        arguments=tuple(arguments or ()),
        budget_s=budget,
        script_output=script_output,
        name=output.stem if output is not None else pipeline.MODULE_NAME,
    )
    with progress(budget, beside_output=script_output is None) as say:
        answer = pipeline.draft(request, context.obj, say)
    write(answer.draft.text, output)
    if answer.problem is not None:
        print(f"perfdoctor: the draft does not run yet: {answer.problem}", file=sys.stderr)
        raise typer.Exit(UNFINISHED)
