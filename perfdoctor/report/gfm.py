"""GitHub-flavoured Markdown whose text is others': nothing of it is taken for Markdown or HTML."""

import re
from collections.abc import Iterable, Sequence

LIMIT_BYTES = 60_000
"""The largest report: a comment on GitHub holds 65,536 characters."""
LONGEST_CELL = 120
"""Characters of a cell; longer texts make a table unreadable."""
MARKS = re.compile(r"[\\|`*_<>\[\]~$&]|^[-+#=]|(?<=^\d)[.)](?= |$)|^\d{2,9}[.)](?= |$)")
"""What has a meaning within a line; and what has one at its begin."""
CALLS = re.compile(r"(?<=[@#])(?=\w)|(?<=:)(?=//)|(?<=www)(?=\.)", re.IGNORECASE)
"""Where a mention (@name), a reference (#1) or a link would begin, if nothing stood between."""
ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
"""Characters that HTML would take for its own."""
NOTHING = "\u200b"
"""A space without width."""


def escaped(text: str) -> str:
    """A text in one line, and as it is: no mark-up, no mention, no link."""
    line = " ".join(text.split())
    return MARKS.sub(lambda mark: kept(mark[0]), CALLS.sub(NOTHING, line))


def kept(mark: str) -> str:
    """HTML's own signs as entities; all others, the last of a list's number, after a backslash."""
    return ENTITIES.get(mark, f"{mark[:-1]}\\{mark[-1]}")


def code(text: str) -> str:
    """A text in one line, as code; the fence is longer than any in the text."""
    line = " ".join(text.split())
    fence = "`" * (longest_run(line) + 1)
    return f"{fence} {line} {fence}" if "`" in line else f"{fence}{line or ' '}{fence}"


def block(text: str) -> str:
    """Lines to copy."""
    fence = "`" * max(3, longest_run(text) + 1)
    return f"{fence}\n{text}\n{fence}"


def longest_run(text: str) -> int:
    """The length of the longest run of backticks in a text."""
    return max(map(len, re.findall("`+", text)), default=0)


def shortened(text: str) -> str:
    """A text in one line, for a cell or a title."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_CELL else f"{line[:LONGEST_CELL]}…"


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of GitHub's Markdown; its cells are plain text that may hold anything."""
    lines = [heading, *rows]
    told = [f"| {' | '.join(map(escaped, line))} |" for line in lines]
    return "\n".join([told[0], f"|{'---|' * len(heading)}", *told[1:]])


def folded(title: str, body: str) -> str:
    """Opened by a click; the body is Markdown, the title text."""
    return f"<details><summary>{titled(title)}</summary>\n\n{body}\n\n</details>\n"


def titled(text: str) -> str:
    """A text in one line of HTML, where no backslash is taken away."""
    line = CALLS.sub(NOTHING, " ".join(text.split()))
    return "".join(ENTITIES.get(mark, mark) for mark in line)


def left_out(count: int) -> str:
    """Told at the end of what became too long."""
    return f"Left out here, for its length: {count} more; `--format json` has all of it."


def fitting(parts: Iterable[str], room: int) -> tuple[list[str], int]:
    """The first parts that fit in so many bytes, and how many are left out."""
    parts, kept = list(parts), []
    for part in parts:
        room -= len(part.encode()) + 1
        if room < 0:
            break
        kept.append(part)
    return kept, len(parts) - len(kept)
