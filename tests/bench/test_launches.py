import math
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfdoctor.bench.launches import (
    SHAPE,
    Side,
    halves_agree,
    measured,
    shape_of,
    step_times_ms,
    waits_shared,
)
from perfdoctor.processes import ProcessGroups
from perfdoctor.schema.launch import Launch
from perfdoctor.trials.live import WorkerEnded
from perfdoctor.trials.worker import Ran

TRAINING = """
import jax, jax.numpy as jnp

@jax.jit
def step(x):
    return jnp.tanh(x @ x)

x = jnp.ones((300, 300))
"""
FOR_EVER = TRAINING + "while True:\n    x = step(x).block_until_ready()\n"
LIMIT_S = 120.0
"""Generous: reached only where something is wrong."""
times = st.lists(st.floats(0.01, 1e3), min_size=2, max_size=300)


MS = 10**6


def test_the_steps_of_a_slice_take_all_of_its_time() -> None:
    calls = [1 * MS, 2 * MS, 4 * MS, 5 * MS]
    always = [Ran(0, 9 * MS, 4)]
    assert step_times_ms(calls, always, 1) == [2.0, 2.0, 1.0, 4.0]  # called ahead, then computed
    assert step_times_ms(calls, always, 2) == [4.0, 5.0]
    assert step_times_ms(calls[:1], always, 1) == [9.0]
    assert step_times_ms([], always, 1) == []


def test_time_between_slices_is_not_that_of_a_step() -> None:
    calls = [10 * MS, 20 * MS, 30 * MS, 940 * MS, 950 * MS]
    slices = [Ran(0, 40 * MS, 3), Ran(930 * MS, 960 * MS, 2)]
    assert step_times_ms(calls, slices, 1) == [20.0, 10.0, 10.0, 20.0, 10.0]
    assert step_times_ms(calls, slices[1:], 1) == [20.0, 10.0]


def test_steps_dispatched_ahead_take_what_is_waited_for_later() -> None:
    all_ahead = [*[0.1] * 19, 98.1]
    assert waits_shared([all_ahead] * 2) == pytest.approx([5.0] * 40)
    as_far_as_it_may = [*[0.1] * 4, *[5.0] * 10, 24.6]
    assert waits_shared([as_far_as_it_may]) == pytest.approx([5.0] * 15)


@pytest.mark.parametrize("times_ms", [[5.0] * 9, [*[5.0] * 4, 80.0, *[5.0] * 5], [0.1, 5.0] * 9])
def test_times_of_steps_that_wait_for_their_results_stay(times_ms: list[float]) -> None:
    assert waits_shared([times_ms]) == times_ms
    assert waits_shared([]) == []


@given(st.lists(times, max_size=5))
def test_sharing_waits_keeps_the_sum(slices_ms: list[list[float]]) -> None:
    told = [ms for each in slices_ms for ms in each]
    found = waits_shared(slices_ms)
    assert len(found) == len(told) and sum(found) == pytest.approx(sum(told))


def test_steps_that_slow_down_are_not_steady() -> None:
    assert halves_agree([5.0] * 10)
    assert not halves_agree([5.0] * 10 + [7.0] * 10)


@given(times)
def test_the_points_of_the_plot_are_means_of_the_steps(times_ms: list[float]) -> None:
    shape = shape_of(times_ms)
    assert len(shape) == min(SHAPE, len(times_ms))
    assert min(times_ms) - 1e-3 <= min(shape) and max(shape) <= max(times_ms) + 1e-3


def test_a_launch_is_timed_and_nothing_of_it_is_left(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(FOR_EVER)
    launch = Launch(("train.py",), dict(os.environ), tmp_path)
    start = time.monotonic()
    with ProcessGroups() as groups:
        found = measured(groups, Side(launch, "step"), start + LIMIT_S)
        took_s = time.monotonic() - start
        assert (groups._children, groups._folders) == ([], [])
    assert found.steps >= 2 and found.compiles >= 1
    assert 0 < found.compile_s < found.first_step_s < took_s
    assert found.median_ms <= found.p95_ms
    assert math.isfinite(found.cpu_ms) and found.cpu_ms > 0
    assert found.peak_rss_bytes > 50 * 2**20


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (TRAINING + "step(x)", "ended after 1 steps"),
        (TRAINING + "step(x)\nraise ValueError('no data')", "no data"),
    ],
)
def test_a_launch_that_ends_too_early_says_why(program: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(program)
    launch = Launch(("train.py",), dict(os.environ), tmp_path)
    with ProcessGroups() as groups, pytest.raises(WorkerEnded, match=why):
        measured(groups, Side(launch, "step"), time.monotonic() + LIMIT_S)
