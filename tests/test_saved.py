"""What was saved is read again, and told by its `schema`."""

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from perfdoctor.report.formats import rendered
from perfdoctor.report.sides import side_by_side
from perfdoctor.saved import compared, read
from perfdoctor.schema.benchmark import Benchmark
from perfdoctor.schema.difference import Difference
from perfdoctor.schema.errors import UsageError
from perfdoctor.schema.report import Report
from tests.bench.made import benchmark, launch
from tests.recorded import saved
from tests.report.reports import healthy, measured


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With one of each kind."""
    told: dict[str, Any] = {
        "report": measured(),
        "well": healthy(),
        "benchmark": benchmark(*[launch()] * 3),
        "slower": benchmark(*[launch(mean_ms=50.0)] * 3),
        "difference": side_by_side(measured(), healthy(), ("a", "b")),
    }
    for name, each in told.items():
        (tmp_path / f"{name}.json").write_text(rendered(each, "json"))
    shutil.copy(saved("slow_etl"), tmp_path / "observation.json")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("report", Report),
        ("observation", Report),
        ("benchmark", Benchmark),
        ("difference", Difference),
    ],
)
def test_each_kind_is_read(folder: Path, name: str, kind: type) -> None:
    assert type(read(folder / f"{name}.json")) is kind


def test_a_report_is_read_as_it_was(folder: Path) -> None:
    assert read(folder / "report.json") == measured()


def test_an_observation_is_diagnosed_and_as_old_as_it_is(folder: Path) -> None:
    report = read(folder / "observation.json")
    assert isinstance(report, Report)
    assert [finding.check for finding in report.findings] == ["etl"]
    assert report.created == "2026-11-21T11:03:01Z"


def test_two_reports_stand_side_by_side(folder: Path) -> None:
    told = compared(folder / "report.json", folder / "well.json")
    assert isinstance(told, Difference)
    assert [each.check for each in told.gone] == ["etl", "gc"]
    mixed = compared(folder / "observation.json", folder / "well.json")
    assert isinstance(mixed, Difference) and mixed.before.target.kind == "observation"


def test_two_benchmarks_are_compared(folder: Path) -> None:
    told = compared(folder / "benchmark.json", folder / "slower.json")
    assert isinstance(told, Benchmark) and told.comparison is not None
    assert told.comparison.verdict == "regressed"


def test_what_is_of_two_kinds_can_not_stand_side_by_side(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"report\.json and .*benchmark\.json can't stand"):
        compared(folder / "report.json", folder / "benchmark.json")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file or directory"),
        ("", "not JSON, or cut off"),
        ('{"schema": "perfdoctor.report/1", "findings": [', "not JSON, or cut off"),
        ("[]", "no report, observation or benchmark of perfdoctor: it has no schema"),
        ('{"a": 1}', "it has no schema"),
        ('{"schema": "perfdoctor.report/2"}', "'perfdoctor.report/2'; expected 'perfdoctor.rep"),
        ('{"schema": "perfdoctor.report/1"}', "no valid report"),
        ('{"schema": "perfdoctor.report/1", "x": ' + "[" * 100_000, "not JSON, or cut off"),
    ],
)
def test_what_can_not_be_read_is_named(content: str | None, said: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(UsageError) as error:
        read(file)
    assert said in str(error.value) and str(error.value).startswith(str(file))


def test_a_key_of_a_wrong_kind_is_named(tmp_path: Path) -> None:
    raw = msgspec.to_builtins(measured())
    raw["findings"][0]["gain"]["low"] = "much"
    file = tmp_path / "bad.json"
    file.write_text(json.dumps(raw))
    with pytest.raises(UsageError, match=r"no valid report: .*findings\[.*\]\.gain\.low"):
        read(file)


def test_a_key_that_every_report_has_is_missed(tmp_path: Path) -> None:
    report = measured()
    steps = {key: value for key, value in (report.steps or {}).items() if key != "time_ms"}
    file = tmp_path / "bad.json"
    file.write_bytes(msgspec.json.encode(replace(report, steps=steps)))
    with pytest.raises(UsageError, match=r"missing required field `time_ms`"):
        read(file)


@given(cut=st.integers(0, 20_000), mark=st.binary(max_size=4))
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_a_damaged_file_is_read_or_named(cut: int, mark: bytes, tmp_path: Path) -> None:
    whole = rendered(measured(), "json").encode()
    file = tmp_path / "damaged.json"
    file.write_bytes(whole[:cut] + mark + whole[cut:] if cut % 2 else whole[:cut] + mark)
    try:
        assert isinstance(read(file), Report)
    except UsageError as error:
        assert str(file) in str(error)
