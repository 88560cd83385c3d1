"""A captured step, again and again, with the host's part beside it."""

import threading
import time
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfdoctor.replay import loop as module
from perfdoctor.replay.loop import (
    FIRST_STEPS,
    WARM_STEPS,
    Loop,
    overlapping,
    padded,
    pauses_of,
    read,
    wait_for,
)
from perfdoctor.schema.capture import Conditions
from tests.replay.captured import Captured, captured, training, two_functions


@pytest.fixture(autouse=True)
def _no_sleep_is_shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop sleeps less by what this machine oversleeps, so no least time would hold here."""
    monkeypatch.setattr(module, "oversleep_s", lambda: 0.0)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Captured:
    return captured(training, tmp_path_factory.mktemp("training"))


@pytest.fixture(scope="module")
def in_two_calls(tmp_path_factory: pytest.TempPathFactory) -> Captured:
    return captured(two_functions, tmp_path_factory.mktemp("two"))


def looped(found: Captured, **conditions: Any) -> Loop:
    return Loop(found.folder, found.capture, Conditions(**conditions))


def ran_ms(found: Captured, **conditions: Any) -> float:
    """What a step takes."""
    steps, seconds = looped(found, **conditions).run(0.1)
    assert steps >= 1
    return seconds / steps * 1e3


def test_it_makes_steps_for_about_as_long_as_it_is_told(trained: Captured) -> None:
    loop = looped(trained, sleep_ms=(5.0,))
    few, _ = loop.run(0.02)
    many, seconds = loop.run(0.2)
    assert 1 <= few < many <= 40
    assert seconds >= many * 0.005


def test_a_slice_that_is_shorter_than_a_step_holds_one(trained: Captured) -> None:
    assert looped(trained, sleep_ms=(20.0,)).run(0.001)[0] == 1


def test_its_work_takes_processor_time_and_its_sleep_none(trained: Captured) -> None:
    begin = time.process_time()
    steps, _ = looped(trained, spin_ms=(5.0,), overlap_ms=5.0).run(0.1)
    assert time.process_time() - begin >= (steps + WARM_STEPS + FIRST_STEPS) * 0.010
    assert ran_ms(trained, spin_ms=(5.0,)) >= 5
    assert ran_ms(trained, sleep_ms=(5.0,), overlap_ms=3.0) >= 8


def test_what_is_done_before_each_call_is_told_by_call(in_two_calls: Captured) -> None:
    assert ran_ms(in_two_calls, spin_ms=(3.0, 4.0), sleep_ms=(0.0, 2.0)) >= 9
    assert ran_ms(in_two_calls, spin_ms=(3.0,)) >= 3
    assert padded((1.0,), 3) == [1.0, 0.0, 0.0]


@pytest.mark.parametrize(("waits", "steps", "reads"), [(1.0, 6, 6), (0.5, 6, 3), (0.0, 6, 0)])
def test_it_waits_in_as_many_steps_as_it_is_told(
    trained: Captured, monkeypatch: pytest.MonkeyPatch, waits: float, steps: int, reads: int
) -> None:
    seen: list[int] = []
    monkeypatch.setattr(module, "read", lambda results: seen.append(len(results)))
    looped(trained, waits=waits)._timed(steps)
    assert len(seen) == reads


@pytest.mark.parametrize(
    ("waits_after", "read"),
    [((), ["last"] * 2), ((0,), ["first"] * 2), ((0, 1), ["first", "last"] * 2)],
)
def test_it_waits_after_the_calls_that_it_is_told(
    in_two_calls: Captured,
    monkeypatch: pytest.MonkeyPatch,
    waits_after: tuple[int, ...],
    read: list[str],
) -> None:
    """The first call returns gradients, which are small, and the last one parameters of 0.5."""
    seen: list[str] = []
    monkeypatch.setattr(
        module, "read", lambda results: seen.append("last" if results[0].mean() > 0.3 else "first")
    )
    looped(in_two_calls, waits=0.5, waits_after=waits_after)._timed(4)
    assert seen == read


def test_several_threads_call_it_at_once(
    trained: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    callers: set[int] = set()
    monkeypatch.setattr(module, "read", lambda results: callers.add(threading.get_ident()))
    steps, _ = looped(trained, callers=3, waits=1.0, sleep_ms=(1.0,))._timed(7)
    assert (steps, len(callers)) == (9, 3)


def test_other_threads_and_processes_work_for_each_step(trained: Captured) -> None:
    beside = {"threads_ms": 0.5, "children_ms": 0.5, "restless": 1, "restless_threads": 1}
    assert ran_ms(trained, **beside) > 0
    assert not any("_beside" in thread.name for thread in threading.enumerate())


def test_a_pause_is_shared_by_the_thread_that_works_in_it_and_sleep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "oversleep_s", lambda: 0.0)
    found = pauses_of(Conditions(sleep_ms=(4.0, 0.0, 1.0), awaited_ms=2.5), 3)
    assert found == [(2_000_000, 0.002), (0, 0.0), (500_000, 0.0005)]
    assert pauses_of(Conditions(sleep_ms=(1.0,), awaited_ms=5.0), 1) == [(5_000_000, 0.0)]
    assert pauses_of(Conditions(), 2) == [(0, 0.0)] * 2


def test_a_step_takes_as_long_as_the_thread_works_for_which_it_waits(trained: Captured) -> None:
    for sleep_ms, awaited_ms in ((4.0, 3.0), (1.0, 5.0)):
        loop = looped(trained, sleep_ms=(sleep_ms,), awaited_ms=awaited_ms)
        steps, took_s = loop._timed(7)
        assert took_s / steps >= awaited_ms / 1e3


def test_a_step_takes_no_less_than_its_host_works(trained: Captured) -> None:
    loop = looped(trained, spin_ms=(5.0,))
    loop.run(0.05)
    loop._ends = 1.0  # as by a single step that was held up
    steps, took_s = loop.run(0.05)
    assert took_s >= steps * 0.005


@given(spin_ms=st.floats(0, 100), device_ms=st.floats(0.01, 100), steps=st.integers(2, 1000))
def test_what_begins_and_ends_steps_that_overlap_is_none_of_a_step(
    spin_ms: float, device_ms: float, steps: int
) -> None:
    """The host works, then the device computes while the host works on."""
    each_ms = max(spin_ms, device_ms)
    single_ms, took_ms = spin_ms + device_ms, (steps - 1) * each_ms + spin_ms + device_ms
    ends = overlapping(single_ms, steps, took_ms)
    assert 0 <= ends <= 1
    assert took_ms / (steps + ends) == pytest.approx(each_ms)


@given(st.floats(0.01, 100), st.integers(2, 1000), st.floats(0.01, 10))
def test_steps_that_are_waited_for_have_no_ends(step_ms: float, steps: int, noise: float) -> None:
    assert overlapping(step_ms, steps, steps * step_ms) == pytest.approx(0, abs=1e-6)
    assert 0 <= overlapping(step_ms, steps, noise * steps * step_ms) <= 1


def test_the_host_works_on_while_the_device_computes(
    trained: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = looped(trained, spin_ms=(1.0,))

    def timed(steps: int) -> tuple[int, float]:
        return steps, 0.03 + 0.05 * steps  # 50 ms each, and 30 ms at the ends

    monkeypatch.setattr(loop, "_timed", timed)
    steps, seconds = loop.run(0.2)
    assert seconds / steps == pytest.approx(0.05)


def test_it_reads_the_smallest_result_of_any_kind() -> None:
    read(())
    read((None, None))
    read((jax.numpy.ones(100), jax.random.key(0)))
    read((jax.numpy.ones(100), None, jax.numpy.ones(())))


def test_it_waits_for_all_that_still_exists() -> None:
    kept, gone = jax.numpy.ones(3), jax.numpy.ones(4)
    gone.delete()
    wait_for([(kept, None), (gone,)])
    assert np.asarray(kept).sum() == 3
