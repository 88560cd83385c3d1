"""A pool of threads of which fewer tasks run at a time for a while."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain, repeat

import pytest

from perfdoctor.observe.agent import fewer
from perfdoctor.observe.agent.beside import Worker
from perfdoctor.observe.agent.fewer import Crowd, Fewer, crowd_among, timed_with_fewer


@contextmanager
def pool_of(threads: int) -> Iterator[ThreadPoolExecutor]:
    """A pool, all of whose threads have begun."""
    begun = threading.Barrier(threads + 1)
    with ThreadPoolExecutor(threads, thread_name_prefix="load") as pool:
        for _ in range(threads):
            pool.submit(begun.wait)
        begun.wait()
        yield pool


def crowd_of(pool: ThreadPoolExecutor) -> Crowd:
    return Crowd(pool._work_queue, "load", len(pool._threads))


def workers_of(pool: ThreadPoolExecutor, cpu_ms: float = 1.0) -> list[Worker]:
    return [Worker(1, each.native_id, each.name, cpu_ms) for each in pool._threads]


class Busy:
    """A task that knows how many of its kind run beside it."""

    def __init__(self) -> None:
        self.most, self._running, self._lock = 0, 0, threading.Lock()

    def __call__(self, number: int) -> int:
        with self._lock:
            self._running += 1
            self.most = max(self.most, self._running)
        time.sleep(0.002)
        with self._lock:
            self._running -= 1
        return number


def test_a_pool_of_many_busy_threads_crowds_the_cores() -> None:
    with pool_of(5) as pool:
        assert crowd_among(workers_of(pool), 2, 10.0) == (pool._work_queue, "load", 5)


@pytest.mark.parametrize(("threads", "cpu_ms"), [(4, 9.0), (5, 0.9)])
def test_few_threads_and_those_that_do_little_crowd_nobody(threads: int, cpu_ms: float) -> None:
    with pool_of(threads) as pool:
        assert crowd_among(workers_of(pool, cpu_ms), 2, 10.0) is None


def test_threads_of_no_pool_are_none() -> None:
    with pool_of(5):
        assert (
            crowd_among([Worker(1, None, "1", 99.0), Worker(1, 1, "main", 99.0)], 2, 10.0) is None
        )


def test_so_many_tasks_run_at_a_time_while_they_are_held_and_all_are_done() -> None:
    with pool_of(8) as pool:
        with Fewer(pool._work_queue, 2) as some:
            some.hold(holds=True)
            held = Busy()
            assert list(pool.map(held, range(40))) == list(range(40))
            some.hold(holds=False)
            free = Busy()
            assert list(pool.map(free, range(40))) == list(range(40))
        after = Busy()
        assert list(pool.map(after, range(40))) == list(range(40))
    assert held.most <= 2
    assert free.most > 2 and after.most > 2


def test_those_that_wait_go_on_when_nobody_holds_them_any_more() -> None:
    over = threading.Event()
    with pool_of(4) as pool:
        with Fewer(pool._work_queue, 1) as some:
            some.hold(holds=True)
            tasks = [pool.submit(over.wait, 30.0) for _ in range(4)]
        over.set()
        assert all(each.result() for each in tasks)


def test_a_task_that_needs_another_one_is_not_kept_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fewer, "PATIENCE_S", 0.05)
    both = threading.Barrier(2)
    with pool_of(2) as pool, Fewer(pool._work_queue, 1) as some:
        some.hold(holds=True)
        for each in [pool.submit(both.wait, 30.0) for _ in range(2)]:
            each.result()


def test_other_pools_and_errors_go_their_way() -> None:
    with pool_of(2) as pool, pool_of(4) as other, Fewer(pool._work_queue, 1) as some:
        some.hold(holds=True)
        busy = Busy()
        assert list(other.map(busy, range(20))) == list(range(20))
        assert busy.most > 1
        with pytest.raises(ZeroDivisionError):
            pool.submit(divmod, 1, 0).result()


def test_each_pair_of_turns_is_timed_in_both_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    taken_ms = iter([20.0, 10.0, 10.0, 20.0, 20.0, 10.0, 10.0, 20.0])
    rested = list[float]()
    with pool_of(3) as pool:
        found = timed_with_fewer(crowd_of(pool), 2, lambda: next(taken_ms), rested.append)
    assert found is not None
    assert (found.name, found.threads, found.at_a_time) == ("load", 3, 2)
    assert found.log_ratios == pytest.approx([0.6931] * 4, abs=1e-4)
    assert rested == [fewer.SETTLED_S] * 4  # once for each change


def test_a_program_that_ends_meanwhile_tells_what_was_seen_if_that_is_enough() -> None:
    for complete, tells in ((2, False), (3, True)):
        taken_ms = chain([20.0, 10.0, 10.0, 20.0, 20.0, 10.0][: 2 * complete], repeat(None))
        with pool_of(3) as pool:
            found = timed_with_fewer(crowd_of(pool), 2, taken_ms.__next__, lambda _: None)
        assert (found is not None) == tells
        assert found is None or len(found.log_ratios) == complete


def test_a_program_that_makes_no_steps_any_more_tells_nothing() -> None:
    with pool_of(3) as pool:
        assert timed_with_fewer(crowd_of(pool), 2, lambda: None, lambda _: None) is None
