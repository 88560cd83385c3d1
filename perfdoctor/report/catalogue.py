"""The catalogue, as `perfdoctor list` and `perfdoctor explain` write it."""

import io
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from perfdoctor.schema.report import Evidence

Row = tuple[str, str, Sequence[str], str]
"""id, one line, needs, whether it applies here"""


def table(rows: Sequence[Row], width: int) -> str:
    """One check a row."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    for heading in ("check", "finds", "needs", "here"):
        grid.add_column(Text(heading, style="dim"), no_wrap=heading == "check")
    grid.show_header = True
    for name, title, needs, here in rows:
        grid.add_row(*(Text(cell) for cell in (name, title, ", ".join(needs) or "-", here)))
    out = io.StringIO()
    Console(file=out, width=width, highlight=False).print(grid)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def explanation(name: str, documentation: str, here: Sequence[Evidence]) -> str:
    """A check's documentation, and what this machine has that bears on it."""
    text = f"{name}: {documentation.strip()}\n"
    if not here:
        return text
    width = max(len(fact.name) for fact in here)
    facts = (f"{fact.name:<{width}}  {shown(fact)}  ({fact.source})\n" for fact in here)
    return f"{text}\nOn this machine\n---------------\n{''.join(facts)}"


def shown(fact: Evidence) -> str:
    """A value with its unit."""
    value = "none" if fact.value is None or fact.value == "" else fact.value
    value = f"{value:g}" if isinstance(value, float) else value
    return f"{value} {fact.unit}".rstrip()
