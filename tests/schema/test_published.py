"""The JSON Schemas that perfdoctor prints, used by a validator that isn't ours."""

import json
from typing import Any

import jsonschema
import pytest

from perfdoctor.report.formats import rendered
from perfdoctor.report.sides import side_by_side
from perfdoctor.schema.published import KINDS, json_schema
from tests.bench.made import benchmark, launch
from tests.recorded import saved
from tests.report.benchmark.test_benchmark_formats import compared
from tests.report.reports import RECORDED, REPORTS, healthy, measured, of_recorded


def validator(kind: str) -> jsonschema.Draft202012Validator:
    schema = json_schema(kind)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


VALIDATORS = {kind: validator(kind) for kind in KINDS}


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_observations_are_valid(name: str) -> None:
    VALIDATORS["observation"].validate(json.loads(saved(name).read_text()))


@pytest.mark.parametrize("name", RECORDED)
def test_their_reports_are_valid(name: str) -> None:
    VALIDATORS["report"].validate(json.loads(rendered(of_recorded(name), "json")))


@pytest.mark.parametrize("make", REPORTS.values(), ids=REPORTS)
def test_other_reports_are_valid(make: Any) -> None:
    VALIDATORS["report"].validate(json.loads(rendered(make(), "json")))


def test_benchmarks_are_valid() -> None:
    for found in (benchmark(launch()), compared("regressed"), compared("incomparable")):
        VALIDATORS["benchmark"].validate(json.loads(rendered(found, "json")))


def test_two_reports_side_by_side_are_valid() -> None:
    both = side_by_side(measured(), healthy(), ("a", "b"))
    VALIDATORS["difference"].validate(json.loads(rendered(both, "json")))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("schema",), "perfdoctor.report/2"),
        (("findings", 0, "gain", "basis"), "guessed"),
        (("findings", 0, "rank"), "first"),
        (("checks", 0, "outcome"), "fine"),
        (("steps", "time_ms"), "8 ms"),
        (("steps", "places", 0, "share"), None),
        (("target",), None),
    ],
)
def test_what_is_wrong_is_refused(path: tuple[str | int, ...], value: Any) -> None:
    raw = json.loads(rendered(measured(), "json"))
    at = raw
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    assert not VALIDATORS["report"].is_valid(raw)


def test_keys_that_a_reader_does_not_know_are_allowed() -> None:
    raw = json.loads(rendered(measured(), "json"))
    VALIDATORS["report"].validate({**raw, "later": 1})


def test_keys_are_described_by_the_code() -> None:
    definitions = json_schema("report")["$defs"]
    steps, gain = definitions["StepSummary"]["properties"], definitions["Evidence"]["properties"]
    assert steps["outliers"]["description"] == "Steps that took more than three times the median."
    assert gain["source"]["description"].startswith("file:line, counter or event")
