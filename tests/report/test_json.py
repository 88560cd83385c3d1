import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from perfdoctor.report.json import render
from perfdoctor.schema.report import Report
from tests.report.reports import REPORTS, measured

every_report = pytest.mark.parametrize("make", REPORTS.values(), ids=REPORTS)

GAIN = {"speedup", "low", "high", "basis"}
OUTCOMES = {"issue", "hint", "ok", "not-applicable", "not-measured", "crashed"}
STEPS = {
    "function": str,
    "calls": dict,
    "count": int,
    "left_out": int,
    "is_traced": bool,
    "time_ms": float,
    "median_ms": float,
    "p95_ms": float,
    "outliers": int,
    "outlier_share": float,
    "slowed": float,
    "standard_error_ms": float,
    "etl_ms": float,
    "device_busy_fraction": float,
    "samples_per_s": float,
    "batch_size": int,
    "cpu_ms": float,
    "parts_ms": dict,
    "places": list,
}
OFTEN_NULL = {
    "untraced_ms": float,
    "alone_ms": float,
    "emulated_ms": float,
    "made_up": list,
    "not_replayed": str,
    "failed": str,
}
"""Null where nothing was replayed, and where the run did not fail."""
PARTS = {"device", "etl", "gc", "dispatch", "wait", "logging", "other"}
ENVIRONMENT = {
    "os",
    "cpu",
    "cores",
    "vector_sets",
    "memory_bytes",
    "backend",
    "devices",
    "gpus",
    "python",
    "packages",
    "variables",
    "settings",
}


def parsed(make: Callable[[], Report]) -> dict[str, Any]:
    raw: dict[str, Any] = json.loads(render(make()))
    return raw


def assert_gain(gain: dict[str, Any]) -> None:
    assert set(gain) == GAIN
    assert all(isinstance(gain[name], float) for name in ("speedup", "low", "high"))
    assert gain["low"] <= gain["speedup"] <= gain["high"]
    assert gain["basis"] in ("measured", "replayed", "estimated")


@every_report
def test_the_report_has_exactly_these_keys(make: Callable[[], Report]) -> None:
    raw = parsed(make)
    assert list(raw) == [
        "schema",
        "perfdoctor",
        "created",
        "target",
        "environment",
        "steps",
        "findings",
        "combined_gain",
        "checks",
        "timeline",
        "memory",
        "tried",
        "sweeps",
        "layers",
        "sources",
    ]
    assert raw["schema"] == "perfdoctor.report/1"
    assert raw["created"].endswith("Z")


@every_report
def test_the_target(make: Callable[[], Report]) -> None:
    target = parsed(make)["target"]
    assert set(target) == {"kind", "name", "args"}
    assert target["kind"] in ("reference", "workload", "script", "observation")
    assert isinstance(target["name"], str) and isinstance(target["args"], list)


@every_report
def test_the_environment(make: Callable[[], Report]) -> None:
    assert set(parsed(make)["environment"]) == ENVIRONMENT


@every_report
def test_the_steps(make: Callable[[], Report]) -> None:
    steps = parsed(make)["steps"]
    if steps is None:
        assert make().steps is None
        return
    replayed = {name: steps.pop(name) for name in OFTEN_NULL}
    assert all(each is None or type(each) is OFTEN_NULL[n] for n, each in replayed.items())
    assert set(steps) == set(STEPS)
    assert {name: type(value) for name, value in steps.items()} == STEPS
    assert set(steps["parts_ms"]) == PARTS
    for place in steps["places"]:
        assert set(place) == {"part", "function", "place", "share"}
        assert place["part"] in PARTS
        assert 0 < place["share"] <= 1
    assert 0 <= steps["device_busy_fraction"] <= 1


@every_report
def test_the_findings(make: Callable[[], Report]) -> None:
    findings = parsed(make)["findings"]
    assert [finding["rank"] for finding in findings] == list(range(1, len(findings) + 1))
    for finding in findings:
        assert set(finding) == {
            *("check", "rank", "summary", "evidence", "fix"),
            *("gain", "remaining_gain", "location", "documentation"),
        }
        for name in ("gain", "remaining_gain"):
            if finding[name] is not None:
                assert_gain(finding[name])


@every_report
def test_the_evidence(make: Callable[[], Report]) -> None:
    for finding in parsed(make)["findings"]:
        assert finding["evidence"]
        for fact in finding["evidence"]:
            assert set(fact) == {"name", "value", "unit", "source"}
            assert all(isinstance(fact[key], str) for key in ("name", "unit", "source"))
            assert not isinstance(fact["value"], dict | list)


@every_report
def test_the_fix(make: Callable[[], Report]) -> None:
    for fix in (finding["fix"] for finding in parsed(make)["findings"]):
        assert set(fix) == {"summary", "how", "change", "changes_results"}
        assert fix["summary"] and fix["how"]
        assert fix["changes_results"] in ("no", "numerics", "training")
        assert fix["change"] is None or set(fix["change"]) <= {"env", "workload"}


@every_report
def test_the_combined_gain(make: Callable[[], Report]) -> None:
    gain = parsed(make)["combined_gain"]
    if gain is not None:
        assert_gain(gain)
        assert gain["basis"] == "measured"


@every_report
def test_each_check_has_one_outcome_and_issues_are_the_findings(
    make: Callable[[], Report],
) -> None:
    raw = parsed(make)
    ids = [check["id"] for check in raw["checks"]]
    assert len(ids) == len(set(ids)) == 7
    for check in raw["checks"]:
        assert set(check) == {"id", "outcome", "summary"}
        assert check["outcome"] in OUTCOMES and check["summary"]
    issues = {check["id"] for check in raw["checks"] if check["outcome"] == "issue"}
    assert issues == {finding["check"] for finding in raw["findings"]}


@every_report
def test_the_report_can_be_read_back(make: Callable[[], Report]) -> None:
    report = make()
    assert msgspec.json.decode(render(report), type=Report) == report


def test_the_reports_show_every_part_of_the_contract() -> None:
    raw = parsed(measured)
    assert len(raw["findings"]) == 2
    assert raw["combined_gain"]["speedup"] == pytest.approx(2.3)
    assert raw["findings"][0]["fix"]["change"] == {"workload": {"data.source": "records"}}
    assert parsed(REPORTS["no_backend"])["findings"][0]["gain"] is None


def test_the_text_is_indented_and_ends_in_a_newline() -> None:
    text = render(measured())
    assert text.startswith('{\n  "schema": "perfdoctor.report/1",\n')
    assert text.endswith("}\n") and not text.endswith("\n\n")
