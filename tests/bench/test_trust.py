from typing import Any

import pytest

from perfdoctor.bench.trust import warnings
from perfdoctor.schema.benchmark import Metric
from tests.bench.made import launch


def step_time(low: float, high: float) -> Metric:
    return Metric(name="step_time", unit="ms", better="lower", value=5.0, low=low, high=high)


def test_good_launches_need_no_warning() -> None:
    assert warnings([launch()] * 5, step_time(4.9, 5.1)) == ()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"steady": False}, "5 of 5 launches never got steady"),
        ({"steps": 7}, "only 7 steps"),
        ({"other_cores": 0.8}, "0.8 cores busy"),
        ({"throttled_ms": 12.0}, "quota"),
    ],
)
def test_what_is_wrong_is_said(changes: dict[str, Any], words: str) -> None:
    (warning,) = warnings([launch(**changes)] * 5, step_time(4.9, 5.1))
    assert words in warning


def test_few_launches_and_wide_intervals_are_said() -> None:
    assert "only 1 launch was measured" in warnings([launch()], None)[0]
    assert "known to ±20% only" in warnings([launch()] * 3, step_time(4.0, 6.0))[0]
    assert "only 0 launches" in warnings([], None)[0]
