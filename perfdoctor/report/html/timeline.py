"""The timeline of some steps as a plot."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from perfdoctor.report.html.page import Figure, Limits
from perfdoctor.report.lanes import MARKS, PARTS, unique
from perfdoctor.report.thinning import evenly, longest_each
from perfdoctor.schema.figures import Excerpt, Lane, Mark

MOST_LANES = 24
"""Lanes of a timeline that are drawn at most."""
SLOWED = 1.1
"""Times that steps were longer for being traced, from which on it is said."""


def timeline(excerpt: Excerpt, slowed: float, limits: Limits) -> Figure:
    """The lanes of an Excerpt, those of its marks above them."""
    begin_ms, end_ms = excerpt.borders_ms[0], excerpt.borders_ms[-1]
    lanes = excerpt.lanes[:MOST_LANES]
    kept = [longest_each(lane.spans, begin_ms, end_ms, limits.spans) for lane in lanes]
    kinds = [kind for kind in MARKS if any(mark.kind == kind for mark in excerpt.marks)]
    marks = {
        kind: longest_each(
            [mark for mark in excerpt.marks if mark.kind == kind], begin_ms, end_ms, limits.spans
        )
        for kind in kinds
    }
    names = [*(MARKS[kind] for kind in kinds), *unique([lane.name for lane in lanes])]
    parts = list(dict.fromkeys(span.part for spans in kept for span in spans))
    left_out = sum(lane.left_out + len(lane.spans) for lane in lanes) - sum(map(len, kept))
    left_out += excerpt.marks_left_out + len(excerpt.marks) - sum(map(len, marks.values()))
    return Figure(
        kind="timeline",
        title=f"Steps {excerpt.first_step} to {excerpt.first_step + steps_in(excerpt) - 1}",
        caption=caption(excerpt, slowed, left_out, len(evenly(excerpt.borders_ms, limits.spans))),
        data={
            "domain": (begin_ms, end_ms),
            "lanes": names,
            "spans": [
                (len(kinds) + number, span.part, span.start_ms, span.end_ms)
                for number, spans in enumerate(kept)
                for span in spans
            ],
            "marks": [drawn(mark) for each in marks.values() for mark in each],
            "borders": evenly(excerpt.borders_ms, limits.spans),
            "colours": [*parts, *(kind for kind in kinds if kind not in parts)],
            "words": PARTS,
        },
        headings=("what", "does", "ms", "of the time"),
        rows=tuple(rows(lanes, end_ms - begin_ms)),
        legend=tuple((part, PARTS[part]) for part in parts),
    )


def steps_in(excerpt: Excerpt) -> int:
    """The number of steps that are shown."""
    return len(excerpt.borders_ms) - 1


def drawn(mark: Mark) -> Mapping[str, Any]:
    """A mark as `draw.js` wants it."""
    text = f"{MARKS[mark.kind][:-1]}: {mark.text}" if mark.text else MARKS[mark.kind][:-1]
    return {
        "lane": MARKS[mark.kind],
        "kind": mark.kind,
        "a": mark.start_ms,
        "b": mark.end_ms,
        "text": text,
    }


def caption(excerpt: Excerpt, slowed: float, left_out: int, borders: int) -> str:
    """What is shown, and what is not."""
    count = steps_in(excerpt)
    text = (
        f"{count:,} of the {excerpt.window_steps:,} steps of {excerpt.function}() that were "
        "traced, in a row: where most kinds of events are, and else the most usual ones. "
        "Vertical lines are the begins of steps"
    )
    if borders < count + 1:
        text += f", of which every {-(-count // max(1, borders - 1)):,}th is drawn"
    text += ". What threads do in Python is known by a sample every 5 ms."
    if slowed >= SLOWED:
        text += f" While they were traced, steps took {slowed:.1f} times as long as without."
    if left_out:
        text += f" {left_out:,} shorter spans are not drawn."
    return text


def rows(lanes: Sequence[Lane], length_ms: float) -> list[tuple[str, ...]]:
    """What each lane did, added up."""
    found: list[tuple[str, ...]] = []
    for lane in lanes:
        spent_ms: defaultdict[str, float] = defaultdict(float)
        for span in lane.spans:
            spent_ms[span.part] += span.end_ms - span.start_ms
        for part, ms in sorted(spent_ms.items(), key=lambda each: -each[1]):
            share = ms / max(length_ms, 1e-9)
            found.append((lane.name, PARTS[part], f"{ms:.2f} ms", f"{share:.1%}"))
    return found
