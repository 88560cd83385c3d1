"""Two diagnoses side by side, for a reader at a terminal."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from perfdoctor.report.console import Lines, printed
from perfdoctor.report.difference.words import groups, numbers, sentence, title
from perfdoctor.report.screen import Detail, Screen
from perfdoctor.schema.difference import Difference

STYLES = {"gone": "green", "new": "red", "still there": "yellow", "can't be told": "dim"}
"""How a terminal shows what became of a finding."""


def render(difference: Difference, screen: Screen | None = None) -> str:
    """The whole comparison as text, as the screen shows it."""
    screen = screen or Screen()
    if screen.detail is Detail.quiet:
        return printed([Lines(" ".join(sentence(difference).split()))], screen)
    return printed(blocks(difference), screen)


def blocks(difference: Difference) -> Iterator[RenderableType]:
    """From top to bottom."""
    yield Text(f"perfdoctor {difference.perfdoctor} · report", style="dim")
    yield Text(f" before  {title(difference.before)}", style="dim")
    yield Text(f" after   {title(difference.after)}", style="dim")
    yield ""
    yield Text(sentence(difference), style="bold")
    yield from (Text(f" ! {each}", style="yellow") for each in difference.cautions)
    yield ""
    if told := groups(difference):
        rows = Table.grid(padding=(0, 2, 0, 1), pad_edge=True)
        for what, check, text in told:
            rows.add_row(Text(what, style=STYLES[what]), Text(check, style="bold"), Text(text))
        yield rows
        yield ""
    if parts := numbers(difference):
        yield columns(parts)


def columns(parts: list[tuple[str, str, str]]) -> Table:
    """A step and its parts, before and after."""
    rows = Table.grid(padding=(0, 2, 0, 1), pad_edge=True)
    rows.add_column()
    rows.add_column(justify="right")
    rows.add_column(justify="right")
    rows.add_row("", Text("before", style="dim"), Text("after", style="dim"))
    for name, before, after in parts:
        rows.add_row(Text(name), before, after)
    return rows
