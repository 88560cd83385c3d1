import math
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfdoctor.bench.launches import SHAPE, Side, halves_agree, measured, shape_of, step_times_ms
from perfdoctor.processes import Ward
from perfdoctor.schema.launch import Launch
from perfdoctor.trials.live import PlayerEnded

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


def test_steps_are_timed_from_begin_to_begin() -> None:
    calls = [0, 10**6, 3 * 10**6, 4 * 10**6, 6 * 10**6]
    always = [(0, 10**9)]
    assert step_times_ms(calls, always, 1.0) == [1.0, 2.0, 1.0, 2.0]
    assert step_times_ms(calls, always, 2.0) == [3.0, 3.0]
    assert step_times_ms(calls[:1], always, 1.0) == []


def test_a_step_in_which_the_program_was_suspended_is_not_timed() -> None:
    calls = [10, 20, 30, 940, 950]
    assert step_times_ms(calls, [(0, 32), (930, 960)], 1.0) == [1e-5, 1e-5, 1e-5]
    assert step_times_ms(calls, [(930, 960)], 1.0) == [1e-5]


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
    with Ward() as ward:
        found = measured(ward, Side(launch, "step", 1.0), start + LIMIT_S)
        took_s = time.monotonic() - start
        assert (ward._children, ward._folders) == ([], [])
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
    with Ward() as ward, pytest.raises(PlayerEnded, match=why):
        measured(ward, Side(launch, "step", 1.0), time.monotonic() + LIMIT_S)
