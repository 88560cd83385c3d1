"""Two diagnoses side by side, as GitHub-flavoured Markdown."""

from collections.abc import Iterator

from perfdoctor.report.difference.words import groups, numbers, sentence, title
from perfdoctor.report.gfm import LIMIT_BYTES, escaped, fitting, folded, left_out, shortened, table
from perfdoctor.schema.difference import Difference

MARKS = {"gone": "🟢", "new": "🔴", "still there": "🟡", "can't be told": "⚪"}
"""A mark before what became of a finding."""
FOR_THE_END = 200
"""Bytes that are kept for what is said of lines that are left out."""


def render(difference: Difference) -> str:
    """What changed, and the numbers of both, folded."""
    parts, left = fitting(lines(difference), LIMIT_BYTES - FOR_THE_END)
    parts += [left_out(left)] if left else []
    return "\n".join(parts) + "\n"


def lines(difference: Difference) -> Iterator[str]:
    """Part by part."""
    yield "### perfdoctor report"
    yield ""
    yield f"**{escaped(sentence(difference))}**"
    yield ""
    for what, check, text in groups(difference):
        yield f"- {MARKS[what]} {escaped(what)}: **{escaped(check)}**: {escaped(text)}"
    for each in difference.cautions:
        yield f"- ⚠️ {escaped(each)}"
    yield ""
    if rows := numbers(difference):
        yield folded("The steps of both", table(("", "before", "after"), rows))
    for name, side in (("before", difference.before), ("after", difference.after)):
        yield f"<sub>{name}: {escaped(shortened(title(side)))}</sub><br>"
