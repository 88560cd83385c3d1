"""Options that several commands share, and the kinds of their values."""

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from perfdoctor.schema.errors import meant

SMALLEST_BARE_PERCENTAGE = 1.0
"""A number without a percent sign from which on it is a percentage, and below which a share: nobody
who writes `--threshold 5` wants to let a run pass that takes six times as long."""
MOST_SHARE = 10.0
"""The share below which a gain or a threshold has to be: 10 is 1000 %."""


def percent(text: str) -> float:
    """5% as 0.05, and so 0.05; so a bare 5 too, and the user is told how it was read."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*(%?)\s*", str(text))
    number = float(found[1]) if found else -1.0
    is_percentage = found is not None and (found[2] == "%" or number >= SMALLEST_BARE_PERCENTAGE)
    share = number / 100 if is_percentage else number
    if not 0 <= share < MOST_SHARE:
        raise typer.BadParameter(f"{text!r} is no percentage; expected one such as 5%")
    if found is not None and not found[2]:
        print(f"perfdoctor: {found[1]} is read as {100 * share:g}%", file=sys.stderr)
    return share


def one_of(names: Sequence[str]) -> Callable[[str], str]:
    """Takes one of these names, and answers any other with the one that is nearest."""

    def parse(text: str) -> str:
        if text in names:
            return text
        raise typer.BadParameter(f"there is no {text!r}; {meant(text, names)}")

    return parse


def format_option(names: Sequence[str], what: str) -> Any:
    """The option --format; `what` is written in it."""
    return typer.Option(
        parser=one_of(names),
        metavar="|".join(names),
        autocompletion=lambda: list(names),
        help=f"How to write {what}.",
    )


def check_ids() -> list[str]:
    """The ids of all checks, for the completion of a shell."""
    from perfdoctor.catalogue import checks

    return [check.id for check in checks()]


def sample_names() -> list[str]:
    """For the completion of a shell."""
    from perfdoctor.targets.samples import samples

    return list(samples())


def target_or_sample(target: str | None, sample: str | None) -> str | None:
    """The target; the workload file of a sample, if one was asked for in its place."""
    from perfdoctor.schema.errors import UsageError
    from perfdoctor.targets import samples

    if sample is None:
        return target
    if target is not None:
        raise UsageError(f"--sample {sample} takes the place of a target; leave out {target}")
    return str(samples.sample(sample))


def identifiers(text: str) -> tuple[str, ...]:
    """The names in a list separated by commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


Arguments = Annotated[
    list[str] | None,
    typer.Argument(metavar="[-- ARGS…]", help="The script's own arguments, after --."),
]
Module = Annotated[
    str | None,
    typer.Option("-m", metavar="MODULE", help="Run a module, as `python -m MODULE` does."),
]
Sample = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        autocompletion=sample_names,
        help="In place of a target: a workload that comes with perfdoctor, such as slow_etl.",
    ),
]
Budget = Annotated[
    float, typer.Option(min=5, metavar="SECONDS", help="Time for the whole command.")
]
Output = Annotated[Path | None, typer.Option(help="Write it there instead of to stdout.")]
Open = Annotated[
    bool, typer.Option("--open", help="With --format html: open the page in a browser.")
]
Threshold = Annotated[
    float,
    typer.Option(parser=percent, metavar="PERCENT", help="A slowdown of less than this passes."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="One line.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="All evidence, and a line for each check.")
]
