from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from perfdoctor.bench.history import append, changes, comparable, results, trend
from perfdoctor.schema.benchmark import Benchmark, Metric
from perfdoctor.schema.errors import UsageError
from tests.bench.made import HERE, benchmark, launch


def on_day(day: int, step_ms: float) -> Benchmark:
    step = Metric(name="step_time", unit="ms", better="lower", value=step_ms)
    created = f"2026-01-{day:02}T00:00:00Z"
    return replace(benchmark(launch(), metrics=(step,)), created=created)


def test_results_are_kept_in_order_and_none_is_overwritten(tmp_path: Path) -> None:
    for day in (3, 1, 2):
        append(tmp_path, on_day(day, 5.0))
    append(tmp_path, on_day(3, 6.0))
    (tmp_path / "notes.txt").write_text("of somebody else")
    assert [each.created[8:10] for each in results(tmp_path)] == ["01", "02", "03", "03"]


def test_a_file_that_is_no_result_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.benchmark.json").write_text("{")
    with pytest.raises(UsageError, match=r"x\.benchmark\.json: not JSON"):
        results(tmp_path)


def test_only_results_of_the_same_target_and_machine_are_compared() -> None:
    newest = on_day(5, 5.0)
    elsewhere = replace(newest, fingerprint=replace(HERE, cpu="Xeon"))
    other = replace(newest, target=replace(newest.target, args=("-v",)))
    assert comparable([elsewhere, other, newest], newest) == [newest]


def test_a_trend_has_a_value_for_each_result() -> None:
    found = trend([on_day(1, 5.0), on_day(2, 6.0)], "step_time")
    assert found is not None
    assert (found.values, found.changes) == ((5.0, 6.0), ())
    assert trend([on_day(1, 5.0)], "etl_wait") is None


def noisy(levels: list[float], each: int, seed: int, sd: float = 0.02) -> list[float]:
    scatter = np.random.default_rng(seed).normal(0, sd, (len(levels), each))
    return [float(v) for v in (np.asarray(levels)[:, None] * np.exp(scatter)).ravel()]


def test_a_lasting_change_is_found_where_it_happened() -> None:
    (found,) = changes(noisy([5.0, 6.0], each=15, seed=1))
    assert found.index == 15
    assert found.ratio == pytest.approx(1.2, rel=0.03)


def test_changes_up_and_down_are_both_found() -> None:
    ratios = [round(each.ratio, 1) for each in changes(noisy([5.0, 6.0, 5.0], each=12, seed=2))]
    assert ratios == [1.2, 0.8]


def test_noise_has_no_changes() -> None:
    alarms = [bool(changes(noisy([5.0], each=40, seed=seed))) for seed in range(60)]
    assert sum(alarms) / len(alarms) <= 0.05


def test_an_accident_is_no_change() -> None:
    values = noisy([5.0], each=30, seed=3)
    values[12] *= 1.15
    assert changes(values) == []


@settings(deadline=None)
@given(st.lists(st.floats(0.1, 100.0), max_size=40))
def test_changes_lie_within_the_series_in_order(values: list[float]) -> None:
    found = [each.index for each in changes(values)]
    assert found == sorted(set(found))
    assert all(0 < index < len(values) for index in found)
