"""SARIF, against the schema that OASIS publishes."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import jsonschema
import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from perfdoctor.report.formats import rendered
from perfdoctor.report.sarif import ROOT
from perfdoctor.schema.report import Report
from tests.report.hostile import TEXTS, filled
from tests.report.reports import RECORDED, measured, no_backend, of_recorded

SCHEMA = json.loads((Path(__file__).parent.parent / "schemas/sarif-schema-2.1.0.json").read_text())
VALIDATOR = jsonschema.Draft4Validator(
    SCHEMA, format_checker=jsonschema.Draft4Validator.FORMAT_CHECKER
)


def run_of(report: Report) -> dict[str, Any]:
    """The only run, once the whole is valid."""
    log = json.loads(rendered(report, "sarif"))
    VALIDATOR.validate(log)
    (run,) = log["runs"]
    return dict(run)


def test_the_schema_refuses_what_is_wrong() -> None:
    log = json.loads(rendered(measured(), "sarif"))
    log["runs"][0]["results"][0]["message"] = "text"
    assert not VALIDATOR.is_valid(log)


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_reports_are_valid_with_a_result_for_each_finding(name: str) -> None:
    report = of_recorded(name)
    run = run_of(report)
    assert [each["ruleId"] for each in run["results"]] == [f.check for f in report.findings]
    rules = run["tool"]["driver"]["rules"]
    for result in run["results"]:
        rule = rules[result["ruleIndex"]]
        assert rule["id"] == result["ruleId"]
        assert "How to fix" in rule["help"]["text"]


def test_a_result_stands_on_its_line_of_the_repository() -> None:
    (result,) = run_of(of_recorded("slow_etl"))["results"]
    place = result["locations"][0]["physicalLocation"]
    file = "perfdoctor/targets/reference/data.py"
    assert place["artifactLocation"] == {"uri": file, "uriBaseId": ROOT}
    assert place["region"] == {"startLine": 80}
    assert result["properties"]["gain"]["basis"] == "measured"


def test_a_finding_without_a_line_stands_on_the_target() -> None:
    (result,) = run_of(no_backend())["results"]
    (place,) = result["locations"]
    assert place["physicalLocation"]["artifactLocation"]["uri"] == "healthy.json"


def test_a_target_named_by_its_whole_path_is_no_file_of_the_repository() -> None:
    report = no_backend()
    moved = replace(report, target=replace(report.target, name="/tmp/a b.py"))
    (result,) = run_of(moved)["results"]
    artifact = result["locations"][0]["physicalLocation"]["artifactLocation"]
    assert artifact == {"uri": "file:///tmp/a%20b.py"}


def test_checks_that_could_not_look_are_told() -> None:
    told = run_of(no_backend())["invocations"][0]["toolExecutionNotifications"]
    missing = [each.id for each in no_backend().checks if each.outcome == "not-measured"]
    assert missing and [each["associatedRule"]["id"] for each in told] == missing


@given(text=TEXTS)
@settings(max_examples=60, deadline=None)
def test_hostile_text_keeps_it_valid(text: str) -> None:
    run = run_of(filled(text))
    uri = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert unquote(uri) and not set(uri) & set(" <>\"'\n")
