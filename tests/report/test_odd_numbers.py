"""A saved file may hold any numbers: it is written, or refused in one sentence."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfdoctor.report.formats import BENCHMARK, DIFFERENCE, REPORT, rendered
from perfdoctor.report.sides import side_by_side
from perfdoctor.schema.benchmark import Benchmark
from perfdoctor.schema.report import Report
from tests.report.benchmark.benchmarks import compared as drawn_benchmark
from tests.report.benchmark.test_benchmark_formats import compared
from tests.report.html.pages import complete
from tests.report.reports import healthy, measured, of_recorded

ODD: st.SearchStrategy[Any] = st.sampled_from(
    [0, -1, 1, 1e308, -1e308, 5e-324, 2**53, -(2**62), None, [], {}, ""]
)


def places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """All keys and indices in plain data."""
    inner: Any = ()
    if isinstance(value, dict | list):
        inner = value.items() if isinstance(value, dict) else enumerate(value)
    within = [place for key, each in inner for place in places(each, (*path, key))]
    return [path, *within] if path else within


def changed(raw: str, path: tuple[str | int, ...], odd: Any) -> str:
    """The JSON with something odd at one place."""
    whole = json.loads(raw)
    at = whole
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = odd
    return json.dumps(whole)


CASES = {
    "report": (rendered(measured(), "json"), Report, REPORT),
    "replayed": (rendered(of_recorded("healthy"), "json"), Report, REPORT),
    "drawn": (rendered(complete(), "json"), Report, REPORT),
    "drawn benchmark": (rendered(drawn_benchmark(), "json"), Benchmark, BENCHMARK),
    "benchmark": (rendered(compared("regressed"), "json"), Benchmark, BENCHMARK),
}


@pytest.mark.parametrize("name", CASES)
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_what_is_read_can_be_written(name: str, data: st.DataObject) -> None:
    raw, kind, formats = CASES[name]
    path = data.draw(st.sampled_from(places(json.loads(raw))))
    try:
        told = msgspec.json.decode(changed(raw, path, data.draw(ODD)), type=kind)
    except msgspec.ValidationError:
        return
    for format in formats:
        rendered(told, format)
    if isinstance(told, Report):
        for both in (side_by_side(told, healthy(), ("", "")), side_by_side(told, told, ("", ""))):
            for format in DIFFERENCE:
                rendered(both, format)
