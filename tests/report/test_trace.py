import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from playwright.sync_api import Browser

from perfdoctor.report import trace
from perfdoctor.report.formats import rendered
from perfdoctor.schema.figures import Lane, Mark, Span
from perfdoctor.schema.report import Report
from tests.perfetto import NUMBER, TEXT, opened, rows
from tests.recorded import FOLDER
from tests.report.html.pages import complete, hostile, large, of_recording

RECORDED = sorted(file.stem for file in FOLDER.glob("*.json"))
NO_NAME = "no timeline"


def events(report: Report) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(trace.render(report))["traceEvents"]
    return found


def tracks(report: Report) -> dict[str, list[dict[str, Any]]]:
    """By the name of a track: its spans."""
    names = {
        (each["pid"], each["tid"]): each["args"]["name"]
        for each in events(report)
        if each["name"] == "thread_name"
    }
    found: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for each in events(report):
        if each["ph"] == "X":
            found[names[each["pid"], each["tid"]]].append(each)
    return found


@pytest.mark.parametrize("name", RECORDED)
def test_every_event_is_as_the_format_wants_it(name: str) -> None:
    told = json.loads(rendered(of_recording(name), "trace"))
    assert told["displayTimeUnit"] == "ms"
    for each in told["traceEvents"]:
        assert each["ph"] in ("X", "M", "i")
        assert isinstance(each["pid"], int) and isinstance(each["tid"], int)
        assert isinstance(each["name"], str)
        if each["ph"] == "X":
            assert each["ts"] >= 0 and each["dur"] >= 0


def test_without_a_timeline_the_trace_says_so() -> None:
    (only,) = [each for each in events(of_recording("healthy")) if each["ph"] == "i"]
    assert only["name"].startswith(NO_NAME)


def test_steps_lanes_marks_and_causes_have_tracks() -> None:
    report = complete()
    seen = report.timeline
    assert seen is not None
    found = tracks(report)
    for lane in seen.lanes:
        assert len(found[lane.name]) == len(lane.spans)
    steps = found["steps of step()"]
    assert [each["name"] for each in steps[:1]] == [f"step {seen.first_step}"]
    assert len(steps) == len(seen.borders_ms) - 1
    assert sum(each["args"]["outlier"] for each in steps) == sum(
        mark.kind == "outlier" for mark in seen.marks
    )
    assert len(found["collections"]) == sum(mark.kind == "collection" for mark in seen.marks)
    (cause,) = (spans for name, spans in found.items() if name.startswith("cause 1: gc"))
    assert cause[0]["args"]["fix"] == report.findings[0].fix.how


def test_a_cause_costs_what_the_device_idles_meanwhile() -> None:
    seen = complete().timeline
    assert seen is not None
    lanes = (
        Lane(name="main", kind="main", spans=(Span("gc", 1, 6), Span("etl", 6, 9))),
        Lane(name="device", kind="device", spans=(Span("device", 0, 2), Span("device", 4, 5))),
    )
    finding = complete().findings[0]
    cost = trace.cost_of(finding, replace(seen, lanes=lanes))
    assert cost == [Span("gc", 2, 4), Span("gc", 5, 6)]
    loading = trace.cost_of(replace(finding, check="etl"), replace(seen, lanes=lanes))
    assert loading == [Span("etl", 6, 9)]
    assert trace.cost_of(replace(finding, check="dtype"), replace(seen, lanes=lanes)) == []


def test_compilations_and_copies_are_causes_too() -> None:
    seen, finding = complete().timeline, complete().findings[0]
    assert seen is not None
    mark = Mark(kind="compilation", start_ms=1, end_ms=3, text="step")
    copies = Lane(name="copies", kind="copies", spans=(Span("copy", 2, 3),))
    seen = replace(seen, marks=(mark,), lanes=(copies,))
    compiling = trace.cost_of(replace(finding, check="recompilation"), seen)
    assert [(each.start_ms, each.end_ms) for each in compiling] == [(1, 3)]
    assert trace.cost_of(replace(finding, check="transfers"), seen) == list(copies.spans)


edges = st.lists(st.integers(0, 100), unique=True, max_size=20).map(sorted)


def spans_of(points: list[int]) -> list[tuple[float, float]]:
    return [(float(a), float(b)) for a, b in zip(points[::2], points[1::2], strict=False)]


@given(edges, edges)
def test_what_is_outside_is_neither_more_nor_less(of: list[int], busy: list[int]) -> None:
    spans = [Span("gc", a, b) for a, b in spans_of(of)]
    found = list(trace.outside(spans, spans_of(busy)))
    covered = {
        moment
        for moment in range(100)
        if any(a <= moment < b for a, b in spans_of(of))
        and not any(a <= moment < b for a, b in spans_of(busy))
    }
    told = {m for m in range(100) if any(s.start_ms <= m < s.end_ms for s in found)}
    assert told == covered


def test_a_track_of_very_many_spans_is_thinned_and_says_so() -> None:
    report = large(1, trace.MOST_SPANS + 5000)
    found = tracks(report)
    (main,) = (name for name in found if name.startswith("main thread"))
    assert "shorter spans left out" in main
    assert len(found[main]) <= trace.MOST_SPANS
    assert any(each["dur"] == 49_000 for each in found[main])
    (steps,) = (name for name in found if name.startswith("steps of"))
    assert "later ones left out" in steps


READ: dict[str, Callable[[], Report]] = {
    "complete": complete,
    "hostile": hostile,
    "none": lambda: of_recording("healthy"),
}


@pytest.mark.parametrize("name", READ)
def test_perfetto_reads_every_span_on_its_track(
    name: str, browser: Browser, tmp_path: Path
) -> None:
    report = READ[name]()
    file = tmp_path / "trace.json"
    file.write_text(rendered(report, "trace"), encoding="utf-8")
    with opened(browser, file) as page:
        read = rows(
            page,
            "select t.name as track, count(*) as spans, sum(s.dur) as ns "
            "from slice s join thread_track tt on s.track_id = tt.id "
            "join thread t using (utid) where s.dur > 0 or s.name like 'step%' group by t.utid",
            track=TEXT,
            spans=NUMBER,
            ns=NUMBER,
        )
        wrong = rows(
            page,
            "select name, value from stats where severity = 'error' and value > 0",
            name=TEXT,
            value=NUMBER,
        )
    expected = sorted(
        [track, len(spans), round(sum(each["dur"] for each in spans) * 1000)]
        for track, spans in tracks(report).items()
        if any(each["dur"] for each in spans)
    )
    assert [[track, spans] for track, spans, _ in sorted(read)] == [e[:2] for e in expected]
    for (_, _, ns), (_, _, told_ns) in zip(sorted(read), expected, strict=True):
        assert ns == pytest.approx(told_ns, abs=1000)
    assert wrong == []
