"""Two reports side by side, in all formats."""

import json

import msgspec
import pytest
from hypothesis import given, settings

from perfdoctor.report.difference.words import sentence
from perfdoctor.report.formats import DIFFERENCE, rendered
from perfdoctor.report.gfm import LIMIT_BYTES
from perfdoctor.report.screen import Detail, Screen
from perfdoctor.report.sides import side_by_side
from perfdoctor.schema.difference import Difference
from tests.report.hostile import TEXTS, filled
from tests.report.reports import healthy, many, measured, no_backend, of_recorded

FIXED = side_by_side(of_recorded("slow_etl"), of_recorded("healthy"), ("a.json", "b.json"))


def test_the_sentence_counts_and_tells_the_speed() -> None:
    assert sentence(FIXED) == (
        "1 cause gone; the run is 1.94× as fast as it was (two single runs, so without an interval)"
    )
    same = side_by_side(healthy(), healthy(), ("a", "b"))
    assert sentence(same) == "no cause on either side; the run is as fast as it was"
    unknown = side_by_side(measured(), no_backend(), ("a", "b"))
    assert sentence(unknown).startswith("1 cause new, 2 causes that can't be told; how the speed")


@pytest.mark.parametrize("width", [60, 200])
def test_the_terminal_tells_what_became_of_each_cause(width: int) -> None:
    text = rendered(FIXED, "terminal", Screen(width=width))
    assert max(map(len, text.splitlines())) <= width
    assert "3.19× (2.80–3.64) measured" in " ".join(text.split())
    gone = next(line for line in text.splitlines() if " gone " in line and "etl" in line)
    assert gone.split()[:2] == ["gone", "etl"]
    step = next(line for line in text.splitlines() if "a step, traced" in line)
    assert step.split()[-4:] == ["17.39", "ms", "8.97", "ms"]


def test_quiet_is_one_line() -> None:
    assert rendered(FIXED, "terminal", Screen(detail=Detail.quiet)) == f"{sentence(FIXED)}\n"


def test_markdown_has_a_line_for_each_cause() -> None:
    text = rendered(FIXED, "markdown")
    assert "- 🟢 gone: **etl**: the device waits" in text
    assert "| a step, traced | 17.39 ms | 8.97 ms |" in text


def test_json_can_be_read_again() -> None:
    assert msgspec.json.decode(rendered(FIXED, "json"), type=Difference) == FIXED
    assert json.loads(rendered(FIXED, "json"))["schema"] == "perfdoctor.difference/1"


def test_very_many_findings_stay_below_the_limit() -> None:
    difference = side_by_side(many(1_000), healthy(), ("a", "b"))
    assert len(rendered(difference, "markdown").encode()) <= LIMIT_BYTES


@pytest.mark.parametrize("format", [each for each in DIFFERENCE if each != "json"])
@given(text=TEXTS)
@settings(max_examples=40, deadline=None)
def test_hostile_text_is_harmless(format: str, text: str) -> None:
    written = rendered(side_by_side(filled(text), filled(text), (text, text)), format)
    assert not [c for c in written if ord(c) < 32 and c not in "\n\t"]
    assert not set("\x7f\x9b\u202e\u2066") & set(written)
