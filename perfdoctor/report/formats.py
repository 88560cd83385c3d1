"""The formats of what perfdoctor writes: by its kind, the module of each, loaded when asked for."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from perfdoctor.schema.errors import UsageError

if TYPE_CHECKING:  # the command line asks for the names of the formats only, also for --help
    from perfdoctor.report.screen import Screen
    from perfdoctor.schema.benchmark import Benchmark
    from perfdoctor.schema.difference import Difference
    from perfdoctor.schema.report import Report

TERMINAL = "terminal"
"""The format for a reader at a terminal, which is the default."""
RAW = ("json", "html", "trace")
"""Formats that are given any text as it is: JSON escapes all of it; the others make harmless what
they show, which is little of a long timeline."""
HERE = "perfdoctor.report"
REPORT = {
    "terminal": f"{HERE}.terminal",
    "json": f"{HERE}.json",
    "markdown": f"{HERE}.markdown",
    "html": f"{HERE}.html.report",
    "junit": f"{HERE}.junit",
    "sarif": f"{HERE}.sarif",
    "github": f"{HERE}.github",
    "trace": f"{HERE}.trace",
}
"""Formats of a Report, each with its module, which has `render(report) -> str`; those for terminals
and for trace viewers take more."""
BENCHMARK = {
    "terminal": f"{HERE}.benchmark.terminal",
    "json": f"{HERE}.json",
    "markdown": f"{HERE}.benchmark.markdown",
    "html": f"{HERE}.benchmark.html",
    "junit": f"{HERE}.benchmark.junit",
    "github": f"{HERE}.benchmark.github",
    "customSmallerIsBetter": f"{HERE}.benchmark.action",
    "bmf": f"{HERE}.benchmark.bmf",
}
"""Formats of a Benchmark, each with its module."""
DIFFERENCE = {
    "terminal": f"{HERE}.difference.terminal",
    "json": f"{HERE}.json",
    "markdown": f"{HERE}.difference.markdown",
}
"""Formats of a Difference, each with its module."""
FORMATS: dict[str, dict[str, str]] = {
    "Report": REPORT,
    "Benchmark": BENCHMARK,
    "Difference": DIFFERENCE,
}
"""The formats of each kind of result, by the name of its class."""
KINDS = {"Report": "a report", "Benchmark": "a benchmark", "Difference": "two reports side by side"}
"""What each kind of result is called in messages."""
ALL = tuple(dict.fromkeys([*REPORT, *BENCHMARK]))
"""The formats of any kind."""


def rendered(
    told: "Report | Benchmark | Difference", format: str, screen: "Screen | None" = None
) -> str:
    """The text in a format of its kind (see FORMATS); hostile text in it is made harmless."""
    from perfdoctor.report.inert import inert
    from perfdoctor.report.screen import Screen

    kind = type(told).__name__
    known = FORMATS[kind]
    if format not in known:
        raise UsageError(f"{KINDS[kind]} can't be written as {format}; expected {', '.join(known)}")
    renderer: Any = import_module(known[format])
    safe = told if format in RAW else inert(told)
    if format == TERMINAL:
        return str(renderer.render(safe, screen or Screen()))
    return str(renderer.render(safe))
