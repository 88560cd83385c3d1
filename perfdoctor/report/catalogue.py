"""The catalogue, as `perfdoctor list` and `perfdoctor explain` write it.

By the standard library alone: rich would take a fifth of the time of these commands.
"""

from collections.abc import Sequence
from itertools import zip_longest
from textwrap import wrap

from perfdoctor.schema.report import Evidence

Row = tuple[str, str, Sequence[str], str]
"""id, one line, needs, whether it applies here"""
HEADINGS = ("check", "finds", "needs", "here")
GAP = 2
"""Blanks between two columns."""
NARROWEST = 8
"""Of a column that can be wrapped."""


def table(rows: Sequence[Row], width: int) -> str:
    """One check a row; long cells, but for the names, are wrapped."""
    cells = [HEADINGS]
    cells += [(name, finds, ", ".join(needs) or "-", here) for name, finds, needs, here in rows]
    widths = fitting([max(map(len, column)) for column in zip(*cells, strict=True)], width)
    lines: list[str] = []
    for name, *others in cells:
        wrapped = [[name], *(wrap(each, w) for each, w in zip(others, widths[1:], strict=True))]
        for parts in zip_longest(*wrapped, fillvalue=""):
            padded = (f"{part:<{w + GAP}}" for part, w in zip(parts, widths, strict=True))
            lines.append("".join(padded).rstrip())
    return "\n".join(lines) + "\n"


def fitting(widths: Sequence[int], width: int) -> list[int]:
    """The widths of columns that take `width` together: the first stays, the widest give way."""
    found = list(widths)
    while sum(found) + GAP * (len(found) - 1) > width:
        widest = max(range(1, len(found)), key=found.__getitem__)
        if found[widest] <= NARROWEST:
            break
        found[widest] -= 1
    return found


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
