"""What holds for every format."""

import json
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
from hypothesis import example, given, settings

from perfdoctor.report.formats import ALL, BENCHMARK, FORMATS, REPORT, rendered
from perfdoctor.report.gfm import LIMIT_BYTES
from perfdoctor.report.html.page import LARGEST_BYTES
from perfdoctor.report.screen import Detail, Screen
from perfdoctor.schema.errors import UsageError
from perfdoctor.schema.report import Report
from tests.bench.made import benchmark, launch
from tests.report.hostile import TEXTS, filled
from tests.report.reports import many, measured

BEYOND_JSON = [format for format in REPORT if format != "json"]
MEGABYTES = 10
LIMITS_BYTES = {
    "terminal": 40_000,
    "markdown": LIMIT_BYTES,
    "junit": 3_000_000,
    "sarif": 10_000_000,
    "github": 10_000,
    "json": 5_000_000,
    "html": LARGEST_BYTES,
    "trace": 1_000_000,
}
"""Of a report with 1 000 findings."""


@pytest.mark.parametrize("format", REPORT)
def test_each_format_of_a_report_can_be_written(format: str) -> None:
    assert rendered(measured(), format).endswith("\n")


@pytest.mark.parametrize("format", BENCHMARK)
def test_each_format_of_a_benchmark_can_be_written(format: str) -> None:
    assert rendered(benchmark(launch()), format).strip() or format == "github"


def test_a_format_that_a_kind_does_not_have_is_named() -> None:
    with pytest.raises(UsageError, match="a report can't be written as bmf; expected terminal"):
        rendered(measured(), "bmf")
    assert {name for known in FORMATS.values() for name in known} == set(ALL)


@pytest.mark.parametrize("format", BEYOND_JSON)
@given(text=TEXTS)
@example(text="\x1b]8;;http://evil.example\x07")
@settings(max_examples=60, deadline=None)
def test_no_format_carries_unseen_characters(format: str, text: str) -> None:
    written = rendered(filled(text), format)
    written.encode()
    unseen = [c for c in written if ord(c) < 32 and c not in "\n\t"]
    assert not unseen
    assert not set("\x7f\x9b\x85\u202e\u2066\u061c\u2028\ufeff") & set(written)


@given(text=TEXTS)
@settings(max_examples=60, deadline=None)
def test_json_brings_all_text_back(text: str) -> None:
    report = filled(text)
    read = json.loads(rendered(report, "json").encode())
    told = read["findings"][0]["summary"]
    assert told == text.encode("utf-8", "backslashreplace").decode()
    msgspec.json.decode(rendered(report, "json"), type=Report)


@pytest.mark.parametrize("detail", Detail)
@given(text=TEXTS)
@settings(max_examples=40, deadline=None)
def test_a_terminal_with_colours_gets_no_codes_of_others(detail: Detail, text: str) -> None:
    written = rendered(filled(text), "terminal", Screen(colour=True, detail=detail))
    own = rendered(measured(), "terminal", Screen(colour=True, detail=detail))
    assert codes(written) <= codes(own) | codes(rendered(filled("x"), "terminal", COLOURED))


COLOURED = Screen(colour=True, detail=Detail.verbose)


def codes(text: str) -> set[str]:
    """The escape codes in it."""
    return {each.partition("m")[0] for each in text.split("\x1b")[1:]}


@pytest.mark.parametrize("format", REPORT)
def test_texts_of_megabytes_do_not_blow_up_a_report(format: str) -> None:
    written = rendered(filled("<|>\x00" * (MEGABYTES * 2**18)), format)
    assert format == "json" or len(written.encode()) < 2_000_000


@pytest.mark.parametrize("format", LIMITS_BYTES)
def test_a_thousand_findings_stay_within_the_limits(format: str) -> None:
    assert len(rendered(many(1_000), format).encode()) <= LIMITS_BYTES[format]


@given(text=TEXTS)
@settings(max_examples=60, deadline=None)
def test_xml_stays_well_formed(text: str) -> None:
    root = ElementTree.fromstring(rendered(filled(text), "junit"))
    assert len(list(root.iter("testcase"))) == len(measured().checks)


@given(text=TEXTS)
@settings(max_examples=60, deadline=None)
def test_annotations_stay_lines(text: str) -> None:
    lines = rendered(filled(text), "github").split("\n")
    assert all(line.startswith(("::warning ", "::notice ")) for line in lines if line)
    assert len(lines) == len(measured().findings) + 2


def test_a_saved_report_of_another_version_with_other_parts_can_be_written() -> None:
    raw: dict[str, Any] = msgspec.to_builtins(measured())
    raw["steps"]["parts_ms"]["napping"] = 1.0
    raw["later"] = {"unknown": True}
    report = msgspec.convert(raw, Report)
    for format in REPORT:
        assert rendered(report, format)
