"""How the metrics of a history changed, for a reader at a terminal."""

from collections.abc import Sequence

from perfdoctor.report.benchmark.terminal import sparkline
from perfdoctor.report.benchmark.words import LABELS
from perfdoctor.schema.benchmark import LevelChange, Trend

SHOWN = ("step_time", "compile_time", "peak_memory")
"""Metrics whose history is shown."""
NEWEST = 60
"""Results that are plotted at most, the newest ones."""
COMMIT = 10
"""Characters of a commit's hash that are shown."""


def render(trends: Sequence[Trend]) -> str:
    """A plot for each metric, and a line for each change of its level."""
    lines = [""]
    for trend in trends:
        count = len(trend.values)
        results = f"{count} result{'s' * (count != 1)}"
        plot = sparkline(trend.values[-NEWEST:])
        lines.append(f" {LABELS[trend.metric]:<20} {plot}  {results} since {trend.created[0][:10]}")
        lines += [f"   {told(trend, change)}" for change in trend.changes]
    return "".join(f"{line}\n" for line in lines)


def told(trend: Trend, change: LevelChange) -> str:
    """By how much a level changed, and since when."""
    commit = trend.commits[change.index]
    at = f", commit {commit[:COMMIT]}" if commit else ""
    return f"{change.ratio - 1:+.1%} since {trend.created[change.index]}{at}"
