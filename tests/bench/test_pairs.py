import math
import os
import time
from pathlib import Path

import pytest

from perfdoctor.bench.launches import Side
from perfdoctor.bench.pairs import FEWEST_ROUNDS, TIMED_S, differences, enough, play, step_log
from perfdoctor.processes import Ward
from perfdoctor.schema.launch import Launch
from perfdoctor.trials.copies import Ran
from perfdoctor.trials.live import PlayerEnded
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
    assert not enough([], recompiles=False)
    assert not enough([[TIMED_S, TIMED_S]] * (FEWEST_ROUNDS - 1), recompiles=False)
    assert not enough([[0.1, 0.3]] * 10, recompiles=False)
    assert enough([[0.1, 0.3]] * 19, recompiles=False)
    assert not enough([[0.1, 0.3]] * 19, recompiles=True)
    assert enough([[2.0, 2.0]] * FEWEST_ROUNDS, recompiles=True)


def test_all_of_the_time_counts() -> None:
    slices = [Ran(0, 10**8, 10), Ran(10**9, 10**9 + 10**8, 10), Ran(5 * 10**9, 6 * 10**9, 10)]
    assert step_log(slices) == pytest.approx(math.log(1.2 / 30))
    with pytest.raises(PlayerEnded, match="no step in 1 s"):
        step_log([Ran(0, 10**9, 0)])


def test_what_a_program_does_now_and_then_does_not_end_the_comparison(tmp_path: Path) -> None:
    evaluating = side(tmp_path, "evaluating.py", EVALUATING)
    with Ward() as ward:
        pair = play(ward, evaluating, evaluating, time.monotonic() + LIMIT_S)
    assert abs(pair.contrasts["step_time"]) < 2


def test_more_work_is_seen_as_slower_and_nothing_is_left(tmp_path: Path) -> None:
    baseline = side(tmp_path, "old.py", FOR_EVER)
    candidate = side(tmp_path, "new.py", MORE)
    with Ward() as ward:
        pair = play(ward, baseline, candidate, time.monotonic() + LIMIT_S)
        assert (ward._children, ward._folders) == ([], [])
    assert pair.contrasts["step_time"] > 0.2
    assert set(pair.contrasts) == set(pair.controls)
    assert {"step_time", "compile_time", "first_step", "cpu_time"} <= set(pair.contrasts)
    assert len(pair.baselines) == 2
    assert pair.candidate.mean_ms > pair.baselines[0].mean_ms
    assert pair.candidate.steps > FEWEST_ROUNDS


def test_a_side_that_ends_says_why(tmp_path: Path) -> None:
    broken = side(tmp_path, "broken.py", TRAINING + "step(x)\nraise ValueError('no data')")
    with Ward() as ward, pytest.raises(PlayerEnded, match="no data"):
        play(ward, side(tmp_path, "old.py", FOR_EVER), broken, time.monotonic() + LIMIT_S)


def test_a_step_that_the_program_did_not_jit_can_not_be_compared(tmp_path: Path) -> None:
    other = Side(side(tmp_path, "old.py", FOR_EVER).launch, "no_such_step")
    with Ward() as ward, pytest.raises(PlayerEnded, match="no function that the program"):
        play(ward, other, other, time.monotonic() + LIMIT_S)
