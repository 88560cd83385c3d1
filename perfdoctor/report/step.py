"""Where the time of a step goes, for a reader at a terminal."""

import textwrap

from perfdoctor.report.console import Lines
from perfdoctor.report.words import MOST_CALLS, WORTH_A_LINE, busiest, scatter, share_of
from perfdoctor.schema.summary import StepSummary

LONGEST_BAR, SHORTEST_BAR = 80, 20
"""Columns of the bar that shows a step's parts."""
WORTH_NAMING = 0.005
"""Share of the step from which on a part has an entry in the legend."""
INKS = {
    "device": ("▇", "green"),
    "etl": ("▒", "yellow"),
    "gc": ("▓", "red"),
    "dispatch": ("░", "cyan"),
    "wait": ("▚", "magenta"),
    "logging": ("◆", "white"),
    "other": ("▞", "blue"),
}
"""How the parts of a step are drawn."""
UNKNOWN_INK = ("▪", "white")
"""How a part is drawn that another version of perfdoctor wrote."""
MARGIN = "    "
"""Columns that are kept free beside it."""


def bar(steps: StepSummary, width: int) -> Lines:
    """The parts of a step as a bar, named below it, with what is to be known about them."""
    text = Lines()
    whole(text, steps, width)
    legend(text, steps["parts_ms"], width)
    for note, style in notes(steps):
        wrapped = textwrap.fill(
            note, width, initial_indent=MARGIN, subsequent_indent=MARGIN, break_on_hyphens=False
        )
        text.append(f"\n{wrapped}", style=style)
    return text


def whole(text: Lines, steps: StepSummary, width: int) -> None:
    """How long a step is, and the bar."""
    parts = steps["parts_ms"]
    total = sum(parts.values())
    traced = ", traced" if steps["slowed"] == 1 else ""
    title = f" a step{traced}, {total:.2f} ms   "
    text.append(title)
    room = max(SHORTEST_BAR, min(LONGEST_BAR, width - len(title) - 4))
    for name, value in parts.items():
        ink, style = INKS.get(name, UNKNOWN_INK)
        text.append(ink * round(room * share_of(value, total)), style=style)


def legend(text: Lines, parts: dict[str, float], width: int) -> None:
    """The parts by their length, as many in a line as fit."""
    total, column = sum(parts.values()), width
    for name, value in sorted(parts.items(), key=lambda part: -part[1]):
        if value < WORTH_NAMING * total:
            continue
        ink, style = INKS.get(name, UNKNOWN_INK)
        entry = f"{name} {value:.2f} ms {share_of(value, total):.0%}"
        if column + len(entry) + 5 > width:
            text.append(f"\n{MARGIN[1:]}")
            column = len(MARGIN) - 1
        text.append(f" {ink} ", style=style)
        text.append(f"{entry}  ")
        column += len(entry) + 5


def notes(steps: StepSummary) -> list[tuple[str, str]]:
    """What else is to be known, each with its style."""
    found = [(scatter(steps), "dim")]
    if failed := steps.get("failed"):
        found.append((f"after these steps the run failed: {failed}", "bold"))
    if made_up := steps.get("made_up"):
        names = ", ".join(made_up[:MOST_CALLS])
        more = ", …" if len(made_up) > MOST_CALLS else ""
        text = f"replayed with made-up values for what could not be saved: {names}{more}"
        found.append((text, "dim"))
    if why := steps.get("not_replayed"):
        found.append((f"no fix was measured on the step alone: {why}", "dim"))
    total = sum(steps["parts_ms"].values())
    for name, value in steps["parts_ms"].items():
        if value >= WORTH_A_LINE * total and (where := busiest(steps, name)):
            found.append((f"{name}: {where}", "dim"))
    return found
