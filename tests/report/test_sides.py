from typing import Any

import pytest
from msgspec.structs import replace

from perfdoctor.report.sides import side_by_side
from perfdoctor.schema.difference import Difference
from perfdoctor.schema.report import Report
from tests.report.reports import disproved, estimated, healthy, measured, no_backend

NAMES = ("a.json", "b.json")


def checks_of(difference: Difference) -> dict[str, list[str]]:
    """What became of the causes."""
    return {
        "gone": [each.check for each in difference.gone],
        "new": [each.check for each in difference.new],
        "stayed": [each.after.check for each in difference.stayed],
        "unclear": [each.id for each in difference.unclear],
    }


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (measured(), estimated(), {"gone": ["gc"], "stayed": ["etl"]}),
        (estimated(), measured(), {"new": ["gc"], "stayed": ["etl"]}),
        (measured(), disproved(), {"gone": ["etl", "gc"]}),
        (measured(), no_backend(), {"new": ["backend"], "unclear": ["etl", "gc"]}),
        (healthy(), healthy(), {}),
    ],
)
def test_causes_are_told_apart(
    before: Report, after: Report, expected: dict[str, list[str]]
) -> None:
    nothing: dict[str, list[str]] = {"gone": [], "new": [], "stayed": [], "unclear": []}
    assert checks_of(side_by_side(before, after, NAMES)) == {**nothing, **expected}


def test_a_check_that_was_not_made_again_is_unclear() -> None:
    after = replace(healthy(), checks=())
    assert checks_of(side_by_side(measured(), after, NAMES))["unclear"] == ["etl", "gc"]


def with_steps(**changes: Any) -> Report:
    report = healthy()
    return replace(report, steps={**(report.steps or {}), **changes})


@pytest.mark.parametrize(
    ("before", "after", "speedup"),
    [
        ({"time_ms": 20.0}, {"time_ms": 10.0}, 2.0),
        ({"time_ms": 20.0, "untraced_ms": 8.0}, {"time_ms": 10.0, "untraced_ms": 2.0}, 4.0),
        ({"time_ms": 20.0, "untraced_ms": 8.0}, {"time_ms": 10.0, "untraced_ms": None}, 2.0),
        ({"time_ms": 20.0, "batch_size": 32}, {"time_ms": 20.0, "batch_size": 64}, 2.0),
        ({"time_ms": 20.0, "batch_size": None}, {"time_ms": 10.0, "batch_size": 64}, 2.0),
    ],
)
def test_the_speedup_is_that_of_the_examples(
    before: dict[str, Any], after: dict[str, Any], speedup: float
) -> None:
    difference = side_by_side(with_steps(**before), with_steps(**after), NAMES)
    assert difference.speedup == pytest.approx(speedup)


def test_without_steps_no_speedup_is_known() -> None:
    assert side_by_side(no_backend(), healthy(), NAMES).speedup is None


def test_another_machine_and_another_target_are_told() -> None:
    other = replace(healthy(), environment={**healthy().environment, "cores": 8.0})
    assert side_by_side(healthy(), other, NAMES).cautions == ("another cores: 2, then 8",)
    one, two = (replace(healthy().target, kind="script", name=name) for name in ("a.py", "b.py"))
    both = side_by_side(replace(healthy(), target=one), replace(healthy(), target=two), NAMES)
    assert both.cautions == ("other targets: a.py, then b.py",)
