"""What the host does beside a step, without what a fix takes away."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from perfdoctor.replay.changes import changed, less_work, loading_elsewhere, rare_ms
from perfdoctor.replay.conditions import Host
from perfdoctor.schema.capture import Conditions
from perfdoctor.schema.fix import Scalar

times = st.floats(0, 1e3)
shares = st.floats(0, 1)
work = st.builds(
    Conditions,
    spin_ms=st.lists(times, min_size=1, max_size=3).map(tuple),
    sleep_ms=st.lists(times, min_size=1, max_size=3).map(tuple),
    overlap_ms=times,
    threads_ms=times,
    children_ms=times,
)


WORK = Conditions(
    spin_ms=(2.0, 4.0), sleep_ms=(8.0,), overlap_ms=2.0, threads_ms=1.0, children_ms=1.0
)
HOST = Host(as_observed=WORK, loading_share=0.5, collecting_ms=4.0, awaiting_share=0.5)


def test_loading_moves_to_a_thread() -> None:
    found = changed(HOST, {"loading": "thread"})
    assert (found.spin_ms, found.sleep_ms, found.overlap_ms) == ((1.0, 2.0), (4.0,), 1.0)
    assert (found.threads_ms, found.children_ms) == (5.0, 1.0)


def test_loading_moves_to_a_process() -> None:
    found = changed(HOST, {"loading": "process"})
    assert (found.spin_ms, found.sleep_ms, found.overlap_ms) == ((1.0, 2.0), (4.0,), 1.0)
    assert (found.threads_ms, found.children_ms) == (0.0, 6.0)


@pytest.mark.parametrize(("in_all_ms", "beside_ms"), [(0.5, 1.0), (3.0, 3.0), (9.0, 5.0)])
def test_what_threads_do_while_they_are_waited_for_takes_a_core_where_nobody_waits(
    in_all_ms: float, beside_ms: float
) -> None:
    host = replace(HOST, threads_ms=in_all_ms)
    assert changed(host, {"loading": "process"}).children_ms == beside_ms + 5.0
    assert changed(host, {"loading": "thread"}).threads_ms == beside_ms + 4.0
    assert changed(host, {"loading": "nowhere"}).children_ms == 0.0


def test_what_is_awaited_goes_with_the_sleep_that_it_fills() -> None:
    waiting = structs.replace(WORK, sleep_ms=(8.0,), awaited_ms=6.0, threads_ms=0.0)
    host = replace(HOST, as_observed=waiting, threads_ms=6.0, awaiting_share=1.0)
    moved = changed(host, {"loading": "thread"})
    assert (moved.sleep_ms, moved.awaited_ms, moved.threads_ms) == ((0.0,), 0.0, 6.0 + 4.0)
    assert moved.spin_ms == (1.0, 2.0)
    gone = changed(host, {"loading": "nowhere"})
    assert (gone.awaited_ms, gone.threads_ms) == (0.0, 0.0)
    larger = changed(host, {"program": "batch-8-to-32"})
    assert (larger.spin_ms, larger.sleep_ms, larger.awaited_ms) == ((5.0, 10.0), (32.0,), 24.0)


def test_loading_that_is_done_once_for_all_is_nobodys_work() -> None:
    found = changed(HOST, {"loading": "nowhere"})
    assert (found.work_ms, found.threads_ms, found.children_ms) == (4.0, 0.0, 0.0)


def test_a_larger_batch_is_loaded_as_slowly_example_by_example_or_in_the_same_time() -> None:
    larger = "batch-8-to-32"
    grows = changed(HOST, {"program": larger})
    assert (grows.program, grows.spin_ms, grows.sleep_ms) == (larger, (5.0, 10.0), (20.0,))
    assert (grows.threads_ms, grows.children_ms) == (4.0, 4.0), "they load it, for all one knows"
    in_order: dict[str, Scalar] = {"program": larger, "growing": 0}
    for asked in (in_order, dict(reversed(in_order.items()))):
        stays = changed(HOST, asked)
        assert stays.program == larger
        assert (stays.spin_ms, stays.sleep_ms) == (WORK.spin_ms, WORK.sleep_ms)
        assert (stays.threads_ms, stays.children_ms) == (WORK.threads_ms, WORK.children_ms)


def test_a_host_that_only_loads_does_nothing_else_and_sleeps_for_nothing_else() -> None:
    found = changed(HOST, {"handling": 0})
    assert (found.spin_ms, found.sleep_ms, found.overlap_ms) == ((1.0, 2.0), (4.0,), 1.0)
    assert (found.threads_ms, found.children_ms) == (1.0, 1.0)


def test_without_collections_so_much_less_is_done() -> None:
    assert changed(HOST, {"collecting": 0}).work_ms == pytest.approx(4.0)
    assert changed(HOST, {"collecting": 0.25}).work_ms == pytest.approx(5.0)
    rarely = replace(HOST, rare_ms=3.0, rarely_collecting_ms=2.0)
    assert rare_ms(rarely, {"collecting": 0.25}) == pytest.approx(1.5)
    assert rare_ms(rarely, {}) == pytest.approx(3.0)


def test_no_more_is_saved_than_there_is() -> None:
    assert less_work(WORK, 100.0).work_ms == 0.0
    assert less_work(Conditions(), 1.0) == Conditions()


def test_several_changes_are_made_at_once() -> None:
    found = changed(HOST, {"waits": 0, "resident": "state", "loading": "nowhere", "donated": True})
    assert (found.waits, found.resident, found.donated) == (0.0, "state", True)
    assert found.work_ms == 4.0


def test_changes_of_nothing_leave_all_as_it_is() -> None:
    assert changed(HOST, {}) == WORK


@given(work, shares, st.sampled_from(["thread", "process"]))
def test_work_that_is_moved_is_still_done(before: Conditions, share: float, where: str) -> None:
    after = loading_elsewhere(before, Host(before, share, share, 0.0), where)

    def everywhere(conditions: Conditions) -> float:
        return conditions.work_ms + conditions.threads_ms + conditions.children_ms

    assert everywhere(after) == pytest.approx(everywhere(before))
    assert after.work_ms <= before.work_ms * (1 + 1e-9)


@given(work, times)
def test_what_is_saved_is_gone_and_nothing_else(before: Conditions, saved_ms: float) -> None:
    after = less_work(before, saved_ms)
    assert after.work_ms == pytest.approx(max(0.0, before.work_ms - saved_ms), abs=1e-6)
    assert (after.sleep_ms, after.threads_ms) == (before.sleep_ms, before.threads_ms)


def test_what_sleeps_no_longer_works_as_before() -> None:
    found = changed(HOST, {"sleeping": 0.0})
    assert (found.spin_ms, found.sleep_ms, found.overlap_ms) == ((2.0, 4.0), (0.0,), 2.0)
