"""Two live workers, run in turn."""

import math
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import psutil
import pytest

from perfdoctor.processes import ProcessGroups
from perfdoctor.schema.fix import Change
from perfdoctor.trials import pair as module
from perfdoctor.trials.live import WorkerEnded
from perfdoctor.trials.pair import (
    COMPILING_SLICE_S,
    FEWEST_AT_DEADLINE,
    FEWEST_ROUNDS,
    OWN_SLICE_S,
    OWN_SLICE_STEPS,
    QUIET_S,
    ROUNDS,
    Start,
    enough,
    log_ratios,
    play_pair,
    steps_of_a_slice,
    steps_of_the_rounds,
    warm_up_by_turns,
)
from perfdoctor.trials.worker import Ran, Worker
from tests.awaited import await_status
from tests.trials.programs import FOR_EVER, Place, soon


@pytest.fixture
def groups() -> Iterator[ProcessGroups]:
    """In which all workers have ended by then."""
    with ProcessGroups() as groups:
        yield groups
        assert (groups._children, groups._folders) == ([], [])


def ran(*slices: Ran, samples: int = 1) -> Worker:
    """A worker that ran so."""
    return cast(Worker, SimpleNamespace(slices=list(slices), samples_per_step=samples))


START = Ran(0, 100, 1), Ran(0, 100, 2)


def test_the_ratio_is_that_of_the_rates_without_the_start() -> None:
    slow = ran(*START, Ran(100, 200, 5), Ran(300, 500, 10))
    fast = ran(*START, Ran(100, 150, 10), Ran(300, 400, 20))
    assert log_ratios(slow, fast, 2) == pytest.approx([math.log(4)] * 2)


def test_the_rate_is_that_of_the_samples() -> None:
    small = ran(Ran(100, 200, 5), samples=8)
    large = ran(Ran(100, 200, 5), samples=64)
    assert log_ratios(small, large, 0) == pytest.approx([math.log(8)])


def test_a_slice_without_progress_has_no_ratio() -> None:
    moving = ran(*START, Ran(100, 200, 5), Ran(200, 300, 5))
    stuck = ran(*START, Ran(100, 200, 0), Ran(200, 300, 5))
    assert log_ratios(moving, stuck, 2) == [0.0]


def test_a_slice_that_was_broken_off_has_no_ratio() -> None:
    complete = ran(*START, Ran(100, 200, 5), Ran(200, 300, 5))
    broken_off = ran(*START, Ran(100, 200, 5), Ran(200, 300, 5, whole=False))
    assert log_ratios(complete, broken_off, 2) == log_ratios(broken_off, complete, 2) == [0.0]


def started(*notes: tuple[float, int, int]) -> Start:
    """After what was noted: how long it ran, its steps, its compilations."""
    start = Start()
    for ran_s, calls, compiles in notes:
        start.note(calls, compiles, ran_s)
    return start


def test_a_worker_is_warm_when_it_makes_steps_and_compiles_nothing() -> None:
    late = 2 + 2 * QUIET_S
    assert started((1, 1, 5), (2, 2, 5), (late, 50, 5)).is_quiet
    assert not started((1, 1, 5), (2, 2, 5), (late, 50, 6)).is_quiet
    assert not started((1, 1, 5), (late, 2, 5)).is_quiet  # too few steps
    assert not started((1, 0, 5), (60, 0, 5)).is_over  # it makes none


def test_a_worker_that_never_ceases_to_compile_is_over_its_start_at_last() -> None:
    notes = [(1.0 + second, 10 * second, second) for second in range(1, 60)]
    assert not started(*notes[:3]).is_over
    endless = started(*notes)
    assert endless.is_over and not endless.is_quiet


def test_workers_that_start_by_turns_never_run_at_the_same_time(
    place: Place, groups: ProcessGroups
) -> None:
    with place.scripted(groups, FOR_EVER) as one, place.scripted(groups, FOR_EVER) as other:
        before_s = 0.0
        for worker in (one, other):
            worker.pause()
            before_s += worker.ran_s(time.monotonic_ns())
        began = time.monotonic_ns()
        warm_up_by_turns((one, other), soon())
        seconds = (time.monotonic_ns() - began) / 1e9
        assert one.tells_steps and other.tells_steps
        for worker in (one, other):
            await_status(worker.process, psutil.STATUS_STOPPED)
            assert 0 < worker.compiling_s < worker.ran_s(worker.counters.since(0)[-1])
        together_s = sum(each.ran_s(each.slices[0].end_ns) for each in (one, other)) - before_s
        assert 0 < together_s < seconds


class Speed(Worker):
    """A worker whose steps take so long, and that compiles in so many of the slices it is given."""

    def __init__(
        self, step_s: float, *, compiles_for_ever: bool = False, compiling_slices: int = 0
    ) -> None:
        self.step_s, self.compiles_for_ever = step_s, compiles_for_ever
        self.compiling_slices = compiling_slices
        self.slices = []

    @property
    def compiles(self) -> int:
        return min(len(self.slices), self.compiling_slices)

    def run_for(self, seconds: float) -> None:
        steps = 0 if math.isinf(self.step_s) else max(1, round(seconds / self.step_s))
        end_s = steps * self.step_s if steps else seconds
        self.slices.append(Ran(0, round(end_s * 1e9), steps))


def test_slices_take_about_equally_long() -> None:
    quick, slow = Speed(0.01), Speed(0.1)
    assert steps_of_a_slice((quick, slow), 0.5) == {quick: 8 * 10, slow: 8}
    assert steps_of_a_slice((quick, slow), 0.5, 2) == {quick: 50, slow: 5}
    assert steps_of_a_slice((quick,), 0.5) == {quick: 50}
    assert steps_of_a_slice((Speed(9.0),), 0.5).popitem()[1] == 2  # not longer than the longest
    endless = Speed(0.1, compiles_for_ever=True)
    assert steps_of_a_slice((quick, endless), 0.5) == {quick: 300, endless: 30}
    with pytest.raises(WorkerEnded, match="no step in 1 s"):
        steps_of_a_slice((Speed(math.inf),), 1.0)


def test_a_slice_has_a_few_steps_however_long_they_take() -> None:
    slow = Speed(5.0)
    assert steps_of_a_slice((slow,), OWN_SLICE_S, OWN_SLICE_STEPS) == {slow: OWN_SLICE_STEPS}


def test_one_that_compiles_when_it_is_timed_has_longer_slices() -> None:
    steady, compiling = Speed(0.01), Speed(0.01, compiling_slices=1)
    assert steps_of_the_rounds((steady, steady), 0.5, 2) == {steady: 50}
    found = steps_of_the_rounds((steady, compiling), 0.5, 2)
    assert found[steady] == found[compiling] == round(COMPILING_SLICE_S / 0.01)
    assert len(compiling.slices) == 2  # that in which it compiled tells nothing of its speed


def test_one_that_is_known_to_compile_for_ever_is_timed_once() -> None:
    endless = Speed(0.01, compiles_for_ever=True, compiling_slices=9)
    assert steps_of_the_rounds((endless,), 0.5, 2) == {endless: 300}
    assert len(endless.slices) == 1


def test_five_rounds_at_least() -> None:
    assert not enough([], soon())
    assert not enough([0.1] * (FEWEST_ROUNDS - 1), soon())
    assert enough([0.1] * FEWEST_ROUNDS, soon())


def test_noisy_rounds_go_on_until_their_number_is_reached() -> None:
    noisy = [1.0, -1.0] * ROUNDS
    assert not enough(noisy[:FEWEST_ROUNDS], soon())
    assert not enough(noisy[: ROUNDS - 1], soon())
    assert enough(noisy[:ROUNDS], soon())


def test_at_the_end_of_the_budget_a_few_rounds_do() -> None:
    past = time.monotonic() - 1
    assert enough([1.0, -1.0, 1.0][:FEWEST_AT_DEADLINE], past)
    with pytest.raises(WorkerEnded, match="the budget ended"):
        enough([0.1] * (FEWEST_AT_DEADLINE - 1), past)


def test_rounds_that_agree_are_enough_at_once() -> None:
    assert enough([0.1, 0.11, 0.1, 0.09, 0.1], soon())


def test_a_pair_of_own_programs_shows_how_much_faster_the_changed_one_is(
    place: Place, groups: ProcessGroups
) -> None:
    with place.own(groups, "train", 0.05, 8) as slow, place.own(groups, "train", 0.01, 16) as fast:
        ratios = play_pair(slow, fast, soon(), 0.2, OWN_SLICE_STEPS)
    assert len(ratios) >= FEWEST_ROUNDS
    assert min(ratios) > math.log(2)  # of ten, by the samples and by the steps


def test_a_worker_that_ends_in_the_middle_of_a_pair_ends_the_pair(
    place: Place, groups: ProcessGroups
) -> None:
    with (
        place.own(groups, "train", 0.01) as lasting,
        place.own(groups, "train", 0.01, 8, 300) as mortal,
        pytest.raises(WorkerEnded, match="worn out"),
    ):
        play_pair(lasting, mortal, soon(), 1.0, OWN_SLICE_STEPS)


def test_a_program_that_compiles_now_and_then_is_given_longer_slices(
    place: Place, groups: ProcessGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "COMPILING_SLICE_S", 1.0)
    monkeypatch.setattr(module, "NEVER_RESTS_S", 1.0)
    with (
        place.own(groups, "train", 0.01) as steady,
        place.own(groups, "train", 0.01, 8, 10**9, 20) as compiling,
    ):
        play_pair(steady, compiling, soon(), 0.2, OWN_SLICE_STEPS)
        assert compiling.compiles_for_ever and not steady.compiles_for_ever
        assert min(each.steps for each in compiling.slices[-FEWEST_ROUNDS:]) > 20


def played(one: Worker, other: Worker) -> list[float]:
    """The ratios of a pair that is over then."""
    with one, other:
        return play_pair(one, other, soon())


def test_more_work_in_a_step_is_seen_as_slower(place: Place, groups: ProcessGroups) -> None:
    little, much = place.scripted(groups, FOR_EVER), place.scripted(groups, FOR_EVER, WORK="3")
    ratios = played(little, much)
    assert len(ratios) >= FEWEST_ROUNDS
    assert sum(ratios) < 0


PRECISE = FOR_EVER.replace("step(x):", "step(x):\n    x = x.astype(jnp.float64)").replace(
    "import os, sys", "import os, sys\nimport jax\njax.config.update('jax_enable_x64', True)"
)


def test_a_setting_is_imposed_on_the_changed_worker_only(
    place: Place, groups: ProcessGroups
) -> None:
    change = Change(settings={"jax_enable_x64": False})
    slow = PRECISE.replace('"1"))', '"4"))')
    assert sum(played(place.scripted(groups, slow), place.scripted(groups, slow, change))) > 0


def test_where_the_step_is_not_told_all_jitted_calls_together_are_compared(
    place: Place, groups: ProcessGroups
) -> None:
    little = place.scripted(groups, FOR_EVER, function="convolve")
    much = place.scripted(groups, FOR_EVER, function="convolve", WORK="3")
    assert sum(played(much, little)) > 0


COMPILES_FOR_EVER = FOR_EVER.replace("x = step(x)\n", "x = jax.jit(lambda x: x + 1)(step(x))\n")


def test_a_script_that_compiles_in_each_step_is_compared_all_the_same(
    place: Place, groups: ProcessGroups
) -> None:
    pair = [place.scripted(groups, COMPILES_FOR_EVER) for _ in range(2)]
    assert len(played(*pair)) >= FEWEST_ROUNDS


def test_a_script_that_jits_nothing_ends_the_trial(place: Place, groups: ProcessGroups) -> None:
    plain = FOR_EVER.replace("@jax.jit", "")
    with (
        place.scripted(groups, plain) as one,
        place.scripted(groups, plain) as other,
        pytest.raises(WorkerEnded, match="budget"),
    ):
        play_pair(one, other, time.monotonic() + 6)


def test_a_change_that_breaks_the_script_ends_the_trial(
    place: Place, groups: ProcessGroups
) -> None:
    fine, broken = place.scripted(groups, FOR_EVER), place.scripted(groups, FOR_EVER, WORK="much")
    with pytest.raises(WorkerEnded, match="invalid literal"):
        played(fine, broken)
