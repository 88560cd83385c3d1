"""`perfdoctor bench`."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from perfdoctor.cli.options import PIPED_WIDTH, output_width


class Format(StrEnum):
    """How the numbers are written."""

    terminal = "terminal"
    json = "json"


def command(
    context: typer.Context,
    target: Annotated[
        str | None,
        typer.Argument(
            help="Your script (.py) or a workload file (.toml); without one, the built-in "
            "reference training loop."
        ),
    ] = None,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- ARGS…]", help="The script's own arguments, after --."),
    ] = None,
    module: Annotated[
        str | None,
        typer.Option("-m", metavar="MODULE", help="Measure a module, as `python -m MODULE` runs."),
    ] = None,
    budget: Annotated[
        float, typer.Option(min=5, metavar="SECONDS", help="Time for the whole command.")
    ] = 120,
    save: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Keep the numbers, and all that is needed to measure them again."
        ),
    ] = None,
    script_output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Where the output of the script's first run goes, not to stderr."
        ),
    ] = None,
    format: Annotated[Format, typer.Option(help="How to write the numbers.")] = Format.terminal,
    output: Annotated[Path | None, typer.Option(help="Write them there instead of stdout.")] = None,
) -> None:
    """Measure a training run: step time, compilation, memory, over several fresh launches.

    A script is launched several times, and may overwrite what an earlier launch wrote.

    Exit codes: 0 measured, 2 wrong usage, 3 nothing could be measured.
    """
    import msgspec

    from perfdoctor.bench import road
    from perfdoctor.cli.progress import progress
    from perfdoctor.files import check_folder, write_whole
    from perfdoctor.report import benchmark

    for file in (output, save, script_output):
        if file is not None:
            check_folder(file)
    request = road.Request(
        target=target,
        module=module,
        arguments=tuple(arguments or ()),
        budget_s=budget,
        script_output=script_output,
        save=save,
    )
    own_output = request.runs_script and script_output is None
    with progress(budget, beside_output=own_output) as say:
        found = road.bench(request, context.obj, say)
    if format is Format.json:
        text = msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n"
    else:
        to_screen = output is None and sys.stdout.isatty()
        width = output_width() if to_screen else PIPED_WIDTH
        text = benchmark.render(found, width=width, colour=to_screen)
    if output is None:
        sys.stdout.write(text)
    else:
        write_whole(output, text.encode())
