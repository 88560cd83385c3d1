"""The formats that other programs read."""

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass

import msgspec
import pytest
from msgspec.structs import replace

from perfdoctor.report import json as as_json
from perfdoctor.report.benchmark import action, bmf, github, junit, markdown
from perfdoctor.report.benchmark.words import exact_change
from perfdoctor.schema.benchmark import Benchmark, Compared, Comparison, ExactChange, Metric
from tests.bench.made import benchmark, launch

STEP_TIME = Metric(name="step_time", unit="ms", better="lower", value=5.0, low=4.9, high=5.1)
RATE = Metric(name="throughput", unit="samples/s", better="higher", value=12800.0)
FLOPS = ExactChange(name="flops", before=100.0, after=112.0)


def compared(verdict: str) -> Benchmark:
    """With this verdict on its step time."""
    step = Compared(
        name="step_time",
        gated=True,
        verdict="inconclusive" if verdict == "incomparable" else verdict,  # type: ignore[arg-type]
        change=0.08,
        low=0.05,
        high=0.11,
        visible=0.04,
    )
    comparison = Comparison(
        against="git:main",
        how="live pairs",
        threshold=0.05,
        verdict=verdict,  # type: ignore[arg-type]
        summary="step 8.0% longer (+5.0% to +11.0%)",
        pairs=5,
        seconds=61.0,
        metrics=(step,),
        exact=(FLOPS,),
        causes=("host-sync: the step is waited for at train.py:84",),
    )
    found = benchmark(launch(), metrics=(STEP_TIME, RATE))
    return replace(found, comparison=comparison)


VERDICTS = ["regressed", "pass", "improved", "inconclusive", "incomparable"]


@pytest.mark.parametrize("verdict", VERDICTS)
def test_the_json_can_be_read_again(verdict: str) -> None:
    found = compared(verdict)
    assert msgspec.json.decode(as_json.render(found), type=Benchmark) == found


@pytest.mark.parametrize("verdict", VERDICTS)
def test_markdown_tells_verdict_numbers_and_causes(verdict: str) -> None:
    text = markdown.render(compared(verdict))
    assert f"{verdict} against git:main" in text
    assert r"| step time | 5 ms | 4.9 to 5.1 | \+8.0% (+5.0% to +11.0%) |" in text
    assert "- FLOPs a step: 100 to 112 (+12, +12.0%)" in text
    assert "train.py:84" in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len({row.count("|") for row in rows}) == 1


@dataclass
class Case:
    """Of a metric in JUnit's XML."""

    name: str
    result: str | None


def cases(text: str) -> list[Case]:
    tags = ("failure", "skipped", "error")
    return [
        Case(each.attrib["name"], next((tag for tag in tags if each.find(tag) is not None), None))
        for each in ElementTree.fromstring(text).iter("testcase")
    ]


@pytest.mark.parametrize(
    ("verdict", "result"),
    [
        ("regressed", "failure"),
        ("pass", None),
        ("improved", None),
        ("inconclusive", "skipped"),
    ],
)
def test_junit_has_a_case_for_each_metric(verdict: str, result: str | None) -> None:
    found = cases(junit.render(compared(verdict)))
    assert found == [Case("step time", result), Case("throughput", None)]


def test_nothing_passes_where_nothing_could_be_compared() -> None:
    assert {each.result for each in cases(junit.render(compared("incomparable")))} == {"skipped"}


@pytest.mark.parametrize(
    ("verdict", "level"),
    [("regressed", "error"), ("pass", "notice"), ("inconclusive", "warning")],
)
def test_an_annotation_is_one_line(verdict: str, level: str) -> None:
    (line,) = github.render(compared(verdict)).splitlines()
    assert line.startswith(f"::{level} title=perfdoctor bench::{verdict} against git:main")
    assert "8.0%25 longer" in line and "%0AFLOPs" in line


def test_the_action_gets_what_is_better_smaller() -> None:
    (entry,) = json.loads(action.render(compared("pass")))
    assert entry == {
        "name": "train.py: step time",
        "unit": "ms",
        "value": 5.0,
        "range": "4.9 to 5.1",
    }


def test_bencher_gets_all_with_their_bounds() -> None:
    (measures,) = json.loads(bmf.render(compared("pass"))).values()
    assert measures["step-time"] == {"value": 5.0, "lower_value": 4.9, "upper_value": 5.1}
    assert measures["throughput"] == {"value": 12800.0}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (ExactChange(name="compiles", before=7, after=8), "compilations: 7 to 8 (+1, +14.3%)"),
        (ExactChange(name="hlo", before="a", after="b"), "another optimised program"),
        (
            ExactChange(name="compiles", before=None, after=8),
            "compilations: 8, was unknown",
        ),
    ],
)
def test_exact_changes_in_words(change: ExactChange, told: str) -> None:
    assert exact_change(change) == told
