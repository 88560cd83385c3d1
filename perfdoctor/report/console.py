"""Text for a terminal: rich's, with what a Screen understands."""

import io
import re
from collections.abc import Iterable, Mapping

from rich.console import Console, RenderableType
from rich.style import Style
from rich.text import Text

from perfdoctor.report.screen import Screen


def printed(blocks: Iterable[RenderableType], screen: Screen) -> str:
    """The blocks one below the other, no line with blanks at its end."""
    out = io.StringIO()
    ansi = screen.colour or bool(screen.links)
    console = Console(
        file=out,
        width=screen.width,
        force_terminal=ansi,
        color_system="standard" if ansi else None,
        no_color=not screen.colour,
        highlight=False,
        legacy_windows=False,
    )
    for block in blocks:
        console.print(linked(block, screen.links), soft_wrap=isinstance(block, Lines))
    return "\n".join(line.rstrip() for line in out.getvalue().split("\n")[:-1]) + "\n"


class Lines(Text):
    """Text whose lines are broken already; lines to paste are never broken."""


def linked(block: RenderableType, links: Mapping[str, str]) -> RenderableType:
    """A block with the places in it as hyperlinks."""
    if links and isinstance(block, Text):
        pattern = re.compile("|".join(re.escape(each) for each in sorted(links, key=len)[::-1]))
        for found in pattern.finditer(block.plain):
            block.stylize(Style(link=links[found[0]]), *found.span())
    return block
