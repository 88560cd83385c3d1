"""The Report as annotations that GitHub shows on the lines of a pull request."""

from perfdoctor.report.annotation import annotation
from perfdoctor.report.words import distance, in_full, sentence
from perfdoctor.schema.report import Finding, Report

TITLE = "perfdoctor"
"""The title of each annotation."""
MOST = 10
"""Warnings of one step that GitHub shows; the last of ours tells how many more there are."""


def render(report: Report) -> str:
    """A line for each finding, on the line of code that it names, and one that sums up."""
    shown = report.findings if len(report.findings) <= MOST else report.findings[: MOST - 1]
    lines = [warning(each) for each in shown]
    if left := len(report.findings) - len(shown):
        lines.append(annotation("warning", f"and {left} more findings", title=TITLE))
    told = f"{report.target.name}: {distance(report.steps)}{sentence(report)}"
    lines.append(annotation("notice", told, title=TITLE))
    return "".join(f"{line}\n" for line in lines)


def warning(finding: Finding) -> str:
    """One finding, on its line."""
    place = finding.location
    where: dict[str, str | int] = {"file": place.file, "line": place.line} if place else {}
    return annotation("warning", in_full(finding), **where, title=f"{TITLE}: {finding.check}")
