import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from perfdoctor.bench.metrics import KINDS, exact, half_width, metrics, over_launches
from perfdoctor.schema.program import StepCost
from tests.bench.made import launch
from tests.recorded import recorded

STEP_TIME = KINDS[0]
positive = st.floats(1e-3, 1e6)


@given(st.lists(positive, min_size=2, max_size=10))
def test_the_interval_holds_the_value_and_the_value_lies_among_the_launches(
    times: list[float],
) -> None:
    found = over_launches(STEP_TIME, [launch(mean_ms=each) for each in times])
    assert found.low is not None and found.high is not None
    assert found.low <= found.value * (1 + 1e-9) and found.value <= found.high * (1 + 1e-9)
    assert min(times) * (1 - 1e-9) <= found.value <= max(times) * (1 + 1e-9)


def test_one_launch_has_no_interval() -> None:
    found = over_launches(STEP_TIME, [launch()])
    assert found.value == pytest.approx(5.0)
    assert found.low is None and found.high is None


def test_what_was_never_there_has_no_interval() -> None:
    found = over_launches(STEP_TIME, [launch(mean_ms=0.0), launch(mean_ms=0.0)])
    assert (found.value, found.low) == (0.0, None)


def test_the_interval_is_that_of_student() -> None:
    half = half_width([1.0, 2.0, 3.0, 4.0])
    assert half == pytest.approx(3.182 * math.sqrt(5 / 3) / 2, rel=1e-3)


def test_throughput_is_as_sure_as_the_step_time() -> None:
    seen = recorded("healthy")
    assert seen.steps is not None
    found = {m.name: m for m in metrics([launch(mean_ms=4.0), launch(mean_ms=5.0)], seen)}
    step, rate = found["step_time"], found["throughput"]
    assert rate.better == "higher"
    assert rate.value == pytest.approx(64 * 1e3 / step.value)
    assert rate.low is not None and rate.high is not None and step.high is not None
    assert rate.low < rate.value < rate.high
    assert rate.low == pytest.approx(64 * 1e3 / step.high)


def test_the_wait_for_data_is_that_of_the_observed_run() -> None:
    seen = recorded("slow_etl")
    assert seen.steps is not None
    wait = next(each for each in metrics([launch()], seen) if each.name == "etl_wait")
    assert (wait.value, wait.low) == (seen.steps.exposed_etl_ms, None)


def test_compilations_are_exact_only_where_all_launches_agree() -> None:
    seen = recorded("healthy")
    assert seen.executable is not None
    same = exact([launch(), launch()], seen)
    assert same is not None and same.compiles == 7
    assert same.flops == seen.executable.flops
    differing = exact([launch(), launch(compiles=8)], seen)
    assert differing is not None and differing.compiles is None
    assert exact([launch()], replace(seen, executable=None)) is None


def test_the_numbers_of_a_step_are_those_of_all_its_programs() -> None:
    seen = recorded("healthy")
    alone = exact([launch()], replace(seen, cost=None))
    cost = StepCost(programs=3, flops=1e9, bytes_accessed=2e9, temp_bytes=7)
    whole = exact([launch()], replace(seen, cost=cost))
    assert alone is not None and alone.programs is None
    assert whole is not None and whole.hlo == alone.hlo
    assert (whole.programs, whole.flops, whole.bytes_accessed, whole.temp_bytes) == (3, 1e9, 2e9, 7)
