"""The Report for a reader at a terminal."""

import textwrap
from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from perfdoctor.report.console import Lines, printed
from perfdoctor.report.intervals import plot
from perfdoctor.report.screen import Detail, Screen
from perfdoctor.report.step import bar
from perfdoctor.report.words import (
    GROUPS,
    advice,
    cost,
    distance,
    fact,
    gain_text,
    heading,
    sentence,
)
from perfdoctor.schema.report import Finding, Report

INDENT = " " * 6
"""Stands before what is said of a finding, below its row."""
MOST = 30
"""Findings that are shown at most, unless all are asked for."""
HEADINGS = ("#", "cause", "costs a step", "its fix gains")
"""Headings of the table of findings."""


def render(report: Report, screen: Screen | None = None) -> str:
    """The whole report as text, as the screen shows it."""
    screen = screen or Screen()
    if screen.detail is Detail.quiet:
        return printed([Lines(" ".join(one_line(report).split()))], screen)
    return printed(blocks(report, screen), screen)


def one_line(report: Report) -> str:
    """What was found, of what, and which causes."""
    causes = ", ".join(finding.check for finding in report.findings[:MOST])
    return f"{report.target.name}: {sentence(report)}{f' [{causes}]' if causes else ''}"


def blocks(report: Report, screen: Screen) -> Iterator[RenderableType]:
    """From top to bottom."""
    most = len(report.findings) if screen.detail is Detail.verbose else MOST
    yield Text(heading(report), style="dim")
    yield ""
    yield Text(f"{distance(report.steps)}{sentence(report)}", style="bold")
    yield ""
    if report.findings:
        yield table(report, screen, most)
    if gains := plot(report, screen.width, most):
        yield gains
    if report.steps:
        yield bar(report.steps, screen.width)
        yield ""
    if screen.detail is Detail.verbose:
        yield every_check(report)
    else:
        yield from groups(report)
    if report.findings:
        yield Text(f" perfdoctor explain {report.findings[0].check}  says more")


def table(report: Report, screen: Screen, most: int) -> Lines:
    """The findings by rank; under each, what was seen and what its fix does."""
    shown = report.findings[:most]
    heading, *rows = columns(report, shown)
    fits = max(map(len, (heading, *rows))) < screen.width
    beside = [
        fits and len(row) + len(finding.fix.how) + 3 <= screen.width
        for row, finding in zip(rows, shown, strict=True)
    ]
    how = "  how" if any(beside) else ""
    text = Lines(f" {heading}{how}\n" if fits else "", style="dim")
    for row, finding, on_the_row in zip(rows, shown, beside, strict=True):
        if fits:
            text.append(f" {row}", style="not dim bold")
        else:
            stacked(text, report, finding)
        before = "  " if on_the_row else f"\n{INDENT}"
        text.append(f"{before}{finding.fix.how}\n", style="not dim green")
        details(text, finding, screen)
    if len(report.findings) > most:
        text.append(f"{INDENT}and {len(report.findings) - most} more: --verbose shows all\n")
    return text


def columns(report: Report, shown: Sequence[Finding]) -> list[str]:
    """The heading and the findings, their cells below each other."""
    time_ms = report.steps["time_ms"] if report.steps else None
    rows = [HEADINGS]
    for each in shown:
        rows.append((str(each.rank), each.check, cost(each, time_ms), gain_text(each.gain)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    return ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) for row in rows]


def stacked(text: Lines, report: Report, finding: Finding) -> None:
    """The cells of a finding below each other, where the terminal is too narrow for a table."""
    text.append(f" {finding.rank}  {finding.check}", style="not dim bold")
    costs = cost(finding, report.steps["time_ms"] if report.steps else None)
    for name, cell in (("costs a step", costs), ("its fix gains", gain_text(finding.gain))):
        if cell:
            text.append(f"\n{INDENT}{name}: {cell}", style="not dim")


def details(text: Lines, finding: Finding, screen: Screen) -> None:
    """What was seen, on what that rests if all is asked for, and what the fix does."""
    text.append(indented(finding.summary, screen.width), style="not dim")
    if screen.detail is Detail.verbose:
        for each in finding.evidence:
            text.append(indented(f"· {fact(each)}", screen.width), style="dim")
    text.append(indented(advice(finding), screen.width), style="dim")


def indented(text: str, width: int) -> str:
    """Wrapped, under the name of its finding."""
    return textwrap.fill(text, width, initial_indent=INDENT, subsequent_indent=INDENT) + "\n"


def every_check(report: Report) -> Table:
    """One line for each check."""
    rows = Table.grid(padding=(0, 2, 0, 1), pad_edge=True)
    for check in report.checks:
        rows.add_row(Text(check.id, style="bold"), check.outcome, Text(check.summary))
    return rows


def groups(report: Report) -> Iterator[Text]:
    """The checks that found nothing, by outcome; hints with their text."""
    for kind, name in GROUPS.items():
        members = [check for check in report.checks if check.outcome == kind]
        if kind == "ok" and members:
            yield Text(f" {name}: {' '.join(check.id for check in members)}")
        elif kind != "ok":
            for reason in dict.fromkeys(check.summary for check in members):
                ids = " ".join(check.id for check in members if check.summary == reason)
                yield Text(f" {name}: {ids}: {reason}")
