"""Gains as intervals on one logarithmic axis, for a reader at a terminal."""

import math
from collections.abc import Sequence

from perfdoctor.report.console import Lines
from perfdoctor.schema.fix import Gain
from perfdoctor.schema.report import Report

LONGEST = 60
"""Columns of the axis."""
INKS = {"measured": ("━", "●"), "replayed": ("━", "●"), "estimated": ("╌", "○")}
"""Characters of an interval's line and of the gain on it, by the basis of the gain."""
TITLE, TOGETHER = "gain", "all together"
"""The heading of the plot, and the name of the line for all fixes."""
TICKS = (1, 1.1, 1.2, 1.5, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000)
"""Gains that are marked, as many as there is room for."""
APART = 4
"""Columns between two of them."""


def plot(report: Report, width: int, most: int) -> Lines:
    """A line for each of the first `most` findings whose gain is known, and one for all fixes
    together; empty if no gain is known.
    """
    rows = [(each.check, each.gain) for each in report.findings[:most] if each.gain is not None]
    if report.combined_gain is not None and len(rows) > 1:
        rows.append((TOGETHER, report.combined_gain))
    if not rows:
        return Lines()
    names = max(len(name) for name in (TITLE, *(name for name, _ in rows)))
    axis = Axis([gain for _, gain in rows], min(LONGEST, width - names - 6))
    text = Lines(f" {TITLE:<{names}}  {axis.ticks()}\n", style="dim")
    for name, gain in rows:
        text.append(f" {name:<{names}}  ", style="not dim")
        text.append(axis.drawn(gain), style="not dim green")
        text.append("\n")
    return text


class Axis:
    """From no gain (or the lowest bound, if that is a loss) to the highest bound."""

    def __init__(self, gains: Sequence[Gain], columns: int) -> None:
        self.columns = max(columns, 12)
        self.low = math.log(min(1.0, *(max(gain.low, 0.01) for gain in gains)))
        high = math.log(max(gain.high for gain in gains))
        self.span = max(high - self.low, math.log(1.1))

    def column(self, speedup: float) -> int:
        """The column in which a gain stands."""
        share = (math.log(max(speedup, 0.01)) - self.low) / self.span
        return round(min(1.0, max(0.0, share)) * (self.columns - 1))

    def ticks(self) -> str:
        """The round numbers that the axis has room for."""
        line, last = "", math.exp(self.low + self.span)
        for tick in TICKS:
            label, column = f"{tick:g}×", self.column(tick)
            if tick <= last * 1.001 and (not line or column >= len(line) + APART):
                line = f"{line:<{column}}{label}"
        return line

    def drawn(self, gain: Gain) -> str:
        """The interval, the gain in it, and where there is none (1×)."""
        stroke, dot = INKS[gain.basis]
        cells = [" "] * self.columns
        cells[self.column(1.0)] = "┊"
        for column in range(self.column(gain.low), self.column(gain.high) + 1):
            cells[column] = stroke
        cells[self.column(gain.speedup)] = dot
        return "".join(cells).rstrip()
