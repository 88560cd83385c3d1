"""The timeline of a Report as a trace for ui.perfetto.dev and chrome://tracing.

Trace Event Format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
The first process is the program as it was observed. The second one is ours: the steps, what is
marked in them, and by cause the time that it costs.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from perfdoctor.report.inert import cleaned
from perfdoctor.report.lanes import MARKS, PARTS, unique
from perfdoctor.report.thinning import longest_each
from perfdoctor.report.words import gain_text, sentence
from perfdoctor.schema.figures import Excerpt, Span
from perfdoctor.schema.report import Finding, Report

Event = dict[str, Any]

PROGRAM, OURS = 1, 2
"""Numbers of the two processes."""
STEPS, FIRST_CAUSE = 1, 10
"""Numbers of our tracks; the marks are between them."""
CAUSES = {"etl": "etl", "gc": "gc", "host-sync": "wait", "missing-jit": "dispatch"}
"""Checks whose cause is a part of the main thread's time: it costs what of it the device idles."""
MOST_SPANS = 20_000
"""On a track: what a viewer still shows with ease. The longest of each small part of the time."""
MOST_CHARACTERS = 300
"""Characters of the text of a span, at most."""
NO_TIMELINE = (
    "no timeline: no steps were traced, or an older perfdoctor saved the observation; "
    "observe the run again to have one"
)
"""What is said where a report holds no timeline."""


def render(report: Report) -> str:
    """JSON that a trace viewer opens; instants are in microseconds from the first step shown."""
    seen = report.timeline
    is_there = seen is not None and len(seen.borders_ms) > 1
    events = events_of(report, seen) if seen is not None and is_there else note(NO_TIMELINE)
    told = {
        "traceEvents": list(events),
        "displayTimeUnit": "ms",
        "otherData": {
            "perfdoctor": report.perfdoctor,
            "created": report.created,
            "target": report.target.name,
            "answer": sentence(report),
        },
    }
    return json.dumps(cleaned(told)) + "\n"


def note(text: str) -> Iterator[Event]:
    """A trace that says only this."""
    yield named("process_name", OURS, 0, "perfdoctor")
    yield {"ph": "i", "s": "g", "name": text, "pid": OURS, "tid": STEPS, "ts": 0}


def events_of(report: Report, seen: Excerpt) -> Iterator[Event]:
    """Both processes."""
    yield named("process_name", PROGRAM, 0, f"{report.target.name}, as it was traced")
    names = unique([lane.name for lane in seen.lanes])
    for number, (name, lane) in enumerate(zip(names, seen.lanes, strict=True), 1):
        kept = longest_each(lane.spans, *ends(seen), MOST_SPANS)
        left_out = lane.left_out + len(lane.spans) - len(kept)
        less = f", {left_out:,} shorter spans left out" if left_out else ""
        yield from track(PROGRAM, number, f"{name}{less}")
        for span in kept:
            yield lasting(PROGRAM, number, PARTS[span.part], span.start_ms, span.end_ms, {})
    yield named("process_name", OURS, 0, "perfdoctor")
    yield from steps(seen)
    yield from marks(seen)
    for number, finding in enumerate(report.findings, FIRST_CAUSE):
        if spans := cost_of(finding, seen):
            yield from cause(finding, spans, number, seen)


def ends(seen: Excerpt) -> tuple[float, float]:
    """Begin and end of what is shown."""
    return seen.borders_ms[0], seen.borders_ms[-1]


def steps(seen: Excerpt) -> Iterator[Event]:
    """A span for each step; of very many the first ones."""
    shown = seen.borders_ms[: MOST_SPANS + 1]
    left_out = len(seen.borders_ms) - len(shown)
    less = f", {left_out:,} later ones left out" if left_out else ""
    yield from track(OURS, STEPS, f"steps of {seen.function}(){less}")
    outliers = {mark.start_ms for mark in seen.marks if mark.kind == "outlier"}
    for number, (begin, end) in enumerate(pairwise(shown), seen.first_step):
        details = {"ms": round(end - begin, 3), "outlier": begin in outliers}
        yield lasting(OURS, STEPS, f"step {number}", begin, end, details)


def marks(seen: Excerpt) -> Iterator[Event]:
    """A track for each kind of marks, but for outliers: the steps say that themselves."""
    present = {mark.kind for mark in seen.marks} - {"outlier"}
    kinds = [kind for kind in MARKS if kind in present]
    for number, kind in enumerate(kinds, STEPS + 1):
        yield from track(OURS, number, MARKS[kind])
        for mark in seen.marks:
            if mark.kind == kind:
                yield lasting(OURS, number, mark.text or kind, mark.start_ms, mark.end_ms, {})


def cause(finding: Finding, spans: Sequence[Span], number: int, seen: Excerpt) -> Iterator[Event]:
    """A track with what a cause costs."""
    yield from track(OURS, number, f"cause {finding.rank}: {finding.check}")
    details = {
        "summary": finding.summary[:MOST_CHARACTERS],
        "fix": finding.fix.how[:MOST_CHARACTERS],
        "gain": gain_text(finding.gain),
    }
    for span in longest_each(spans, *ends(seen), MOST_SPANS):
        yield lasting(OURS, number, finding.check, span.start_ms, span.end_ms, details)


def cost_of(finding: Finding, seen: Excerpt) -> list[Span]:
    """When a cause holds the steps back; nothing where the timeline does not tell."""
    if finding.check == "recompilation":
        found = [mark for mark in seen.marks if mark.kind == "compilation"]
        return [Span("other", mark.start_ms, mark.end_ms) for mark in found]
    if finding.check == "transfers":
        return [s for lane in seen.lanes if lane.kind == "copies" for s in lane.spans]
    part = CAUSES.get(finding.check)
    busy = sorted(
        (s.start_ms, s.end_ms) for lane in seen.lanes if lane.kind == "device" for s in lane.spans
    )
    main = [s for lane in seen.lanes if lane.kind == "main" for s in lane.spans if s.part == part]
    return list(outside(main, busy))


def outside(spans: Sequence[Span], busy: Sequence[tuple[float, float]]) -> Iterator[Span]:
    """What of the spans lies in none of the busy times; both are sorted by their begins."""
    first = 0
    for span in spans:
        at_ms = span.start_ms
        while first < len(busy) and busy[first][1] <= at_ms:
            first += 1
        for begin, end in busy[first:]:
            if begin >= span.end_ms:
                break
            if begin > at_ms:
                yield Span(span.part, at_ms, begin)
            at_ms = max(at_ms, end)
        if at_ms < span.end_ms:
            yield Span(span.part, at_ms, span.end_ms)


def track(process: int, number: int, name: str) -> Iterator[Event]:
    """Its name and its place."""
    yield named("thread_name", process, number, name)
    order = {"name": "thread_sort_index", "args": {"sort_index": number}}
    yield {"ph": "M", "pid": process, "tid": number, **order}


def named(what: str, process: int, number: int, name: str) -> Event:
    """The name of a process or a thread."""
    return {"ph": "M", "name": what, "pid": process, "tid": number, "args": {"name": name}}


def lasting(
    process: int, number: int, name: str, start_ms: float, end_ms: float, details: Event
) -> Event:
    """A span on a track."""
    return {
        "ph": "X",
        "name": name,
        "cat": "perfdoctor",
        "pid": process,
        "tid": number,
        "ts": round(start_ms * 1e3, 3),
        "dur": round(max(0.0, end_ms - start_ms) * 1e3, 3),
        "args": details,
    }
