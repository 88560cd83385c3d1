import math
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfdoctor.bench.launches import Side
from perfdoctor.bench.pairs import (
    FEWEST_ROUNDS,
    SHORTEST_TIMED_S,
    TIMED_S,
    TOLD_BY,
    Pair,
    differences,
    enough,
    play,
    step_log,
    worth_timing_s,
)
from perfdoctor.processes import ProcessGroups
from perfdoctor.schema.launch import Launch
from perfdoctor.trials.live import WorkerEnded
from perfdoctor.trials.worker import Ran
from tests.bench.made import launch
from tests.bench.test_launches import FOR_EVER, LIMIT_S, TRAINING

MORE = FOR_EVER.replace("jnp.tanh(x @ x)", "jnp.tanh(jnp.tanh(x @ x) @ x @ x)")

EVALUATING = (
    TRAINING
    + """
import time
while True:
    for _ in range(30):
        x = step(x).block_until_ready()
    begin = time.process_time()
    while time.process_time() < begin + 0.25:
        pass
"""
)


def side(folder: Path, name: str, program: str) -> Side:
    (folder / name).write_text(program)
    return Side(Launch((name,), dict(os.environ), folder), "step")


def test_the_candidate_is_compared_with_both_baselines() -> None:
    assert differences([0.0, 0.2, 0.3]) == pytest.approx((0.2, 0.2))
    assert differences([0.1, 0.1, 0.1]) == pytest.approx((0.0, 0.0))


def test_a_pair_runs_for_some_seconds_and_for_longer_if_something_compiles() -> None:
    assert not enough([], TIMED_S, recompiles=False)
    assert not enough([[TIMED_S, TIMED_S]] * (FEWEST_ROUNDS - 1), TIMED_S, recompiles=False)
    assert not enough([[0.1, 0.3]] * 10, TIMED_S, recompiles=False)
    assert enough([[0.1, 0.3]] * 19, TIMED_S, recompiles=False)
    assert enough([[0.1, 0.3]] * 10, SHORTEST_TIMED_S, recompiles=False)
    assert not enough([[0.1, 0.3]] * 19, TIMED_S, recompiles=True)
    assert enough([[2.0, 2.0]] * FEWEST_ROUNDS, TIMED_S, recompiles=True)


def seen(launches: float, slices: float, start_s: float = 7.5) -> list[Pair]:
    """Pairs with so much scatter, as standard deviations of a launch's step time."""
    control = launches * math.sqrt(2 * (2 * TOLD_BY - 1) / TOLD_BY)
    return [
        Pair({"step_time": 0.0}, {"step_time": control}, launch(), (), start_s, TIMED_S, slices**2)
    ] * TOLD_BY


def test_launches_that_differ_by_themselves_are_not_timed_for_long() -> None:
    assert worth_timing_s(seen(0.05, 0.015)[1:]) == TIMED_S  # too few to tell
    assert worth_timing_s(seen(0.05, 0.05)) == TIMED_S
    assert worth_timing_s(seen(0.05, 0.001)) == SHORTEST_TIMED_S
    assert SHORTEST_TIMED_S < worth_timing_s(seen(0.05, 0.015)) < TIMED_S
    assert worth_timing_s(seen(0.05, 0.015, start_s=30)) > worth_timing_s(seen(0.05, 0.015))
    assert worth_timing_s(seen(0.05, math.inf)) == TIMED_S


def made(slices_ms: list[list[float]]) -> tuple[list[Ran], list[int]]:
    """Slices of steps that take so long, and the instants of their calls."""
    found, calls, now = [], [], 0
    for steps_ms in slices_ms:
        begin = now
        for each in steps_ms:
            calls.append(now)
            now += round(each * 1e6)
        found.append(Ran(begin, now, len(steps_ms)))
        now += 10**9  # suspended
    return found, calls


def test_slices_that_neighbours_slow_down_do_not_count() -> None:
    slices, calls = made([[10.0] * 10] * 8 + [[14.0] * 10, [9.0] * 10])
    assert step_log(slices, calls, 1)[0] == pytest.approx(math.log(0.01))


@pytest.mark.parametrize("pause_ms", [30.0, 90.0, 500.0])
def test_what_a_program_does_rarely_counts_in_full(pause_ms: float) -> None:
    slices, calls = made([[10.0] * 10] * 9 + [[10.0, pause_ms + 10, *[10.0] * 8]])
    assert step_log(slices, calls, 1)[0] == pytest.approx(math.log((1000 + pause_ms) / 100 / 1e3))


def test_the_scatter_of_the_slices_is_told_and_that_of_rare_things_too() -> None:
    alike = step_log(*made([[10.0] * 10] * 10), 1)[1]
    scattered = step_log(*made([[10.0] * 10, [11.0] * 10] * 5), 1)[1]
    rare = step_log(*made([[10.0] * 10] * 9 + [[10.0, 500.0, *[10.0] * 8]]), 1)[1]
    assert alike == pytest.approx(0) and 0.01 < math.sqrt(scattered) < 0.05
    assert math.sqrt(rare) == pytest.approx(490 / 1490 * 0.95, rel=0.01)


def test_a_wait_for_what_was_dispatched_before_is_nothing_rare() -> None:
    ahead = [0.1] * 9 + [99.1]
    waiting = [0.1] * 5 + [60.0, *[0.1] * 3, 39.2]
    slices, calls = made([ahead] * 7 + [waiting] * 3)
    found, variance = step_log(slices, calls, 1)
    assert (found, variance) == pytest.approx((math.log(0.01), 0), abs=1e-9)


def test_so_does_a_slice_without_a_step() -> None:
    slices, calls = made([[10.0] * 10] * 6)
    slices.append(Ran(10**11, 10**11 + 6 * 10**8, 0))
    assert step_log(slices, calls, 1)[0] == pytest.approx(math.log(0.02))
    with pytest.raises(WorkerEnded, match="no step in 1 s"):
        step_log([Ran(0, 10**9, 0)], [], 1)


def test_a_step_of_several_calls_is_one() -> None:
    slices, calls = made([[10.0] * 10] * 9 + [[10.0, 60.0, *[10.0] * 8]])
    halved = [Ran(each.begin_ns, each.end_ns, each.steps / 2) for each in slices]
    assert step_log(halved, calls, 2)[0] == pytest.approx(math.log(1050 / 50 / 1e3))


@given(st.lists(st.lists(st.floats(0.5, 500), min_size=1, max_size=9), min_size=6, max_size=9))
def test_the_step_time_lies_between_the_shortest_and_the_longest(
    slices_ms: list[list[float]],
) -> None:
    slices, calls = made(slices_ms)
    found_ms = 1e3 * math.exp(step_log(slices, calls, 1)[0])
    assert min(map(min, slices_ms)) * 0.999 <= found_ms <= 1.001 * sum(map(sum, slices_ms))


def test_what_a_program_does_now_and_then_does_not_end_the_comparison(tmp_path: Path) -> None:
    evaluating = side(tmp_path, "evaluating.py", EVALUATING)
    with ProcessGroups() as groups:
        pair = play(groups, evaluating, evaluating, time.monotonic() + LIMIT_S)
    assert abs(pair.contrasts["step_time"]) < 2


def test_more_work_is_seen_as_slower_and_nothing_is_left(tmp_path: Path) -> None:
    baseline = side(tmp_path, "old.py", FOR_EVER)
    candidate = side(tmp_path, "new.py", MORE)
    with ProcessGroups() as groups:
        pair = play(groups, baseline, candidate, time.monotonic() + LIMIT_S)
        assert (groups._children, groups._folders) == ([], [])
    assert pair.contrasts["step_time"] > 0.2
    assert set(pair.contrasts) == set(pair.controls)
    assert {"step_time", "compile_time", "first_step", "cpu_time"} <= set(pair.contrasts)
    assert len(pair.baselines) == 2
    assert pair.candidate.mean_ms > pair.baselines[0].mean_ms
    assert pair.candidate.steps > FEWEST_ROUNDS


def test_a_side_that_ends_says_why(tmp_path: Path) -> None:
    broken = side(tmp_path, "broken.py", TRAINING + "step(x)\nraise ValueError('no data')")
    with ProcessGroups() as groups, pytest.raises(WorkerEnded, match="no data"):
        play(groups, side(tmp_path, "old.py", FOR_EVER), broken, time.monotonic() + LIMIT_S)


def test_a_step_that_the_program_did_not_jit_can_not_be_compared(tmp_path: Path) -> None:
    other = Side(side(tmp_path, "old.py", FOR_EVER).launch, "no_such_step")
    with (
        ProcessGroups() as groups,
        pytest.raises(WorkerEnded, match="not a function that the program"),
    ):
        play(groups, other, other, time.monotonic() + LIMIT_S)
