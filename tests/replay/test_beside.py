"""Threads and processes that work beside a replayed step, and end with it."""

import subprocess
import sys
import threading
import time
from typing import Any

import psutil
import pytest

from perfdoctor.processes import cpu_seconds
from perfdoctor.replay import beside as module
from perfdoctor.replay.beside import (
    AHEAD,
    MOST_WORKERS,
    processes_beside,
    restless_beside,
    restless_threads,
    spin,
    thread_awaited,
    thread_beside,
)
from tests.awaited import await_end


def test_a_thread_beside_works_for_as_long_as_it_is_told() -> None:
    before = threading.active_count()
    with thread_beside(5.0) as beside:
        assert beside is not None
        begin = time.process_time()
        for _ in range(4):
            beside.tell()
        while time.process_time() - begin < 0.020:
            time.sleep(0.001)
    assert threading.active_count() == before


def test_steps_keep_the_pace_of_a_thread_that_sets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    free, made = threading.Semaphore(0), []

    def work(work_ns: int) -> None:
        free.acquire()
        made.append(work_ns)

    monkeypatch.setattr(module, "spin", work)
    with thread_beside(5.0, sets_pace=True) as beside:
        assert beside is not None
        for _ in range(AHEAD):
            beside.tell()
        further = threading.Thread(target=beside.tell)
        further.start()
        further.join(0.05)
        assert further.is_alive() and not made
        free.release(AHEAD + 1)
        further.join()
        beside.caught_up()
        assert made == [5_000_000] * (AHEAD + 1)


def test_who_waits_for_a_thread_waits_until_a_piece_of_its_work_is_done() -> None:
    before = threading.active_count()
    with thread_awaited([(5_000_000, 0.0), (1_000_000, 0.001)]) as wait:
        begin = time.process_time()
        for _ in range(4):
            wait(60.0)  # its own sleeps tell, not this
        assert time.process_time() - begin >= 2 * 0.006
    assert threading.active_count() == before


def test_a_thread_that_is_awaited_is_ahead_by_some_pieces_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[int] = []
    monkeypatch.setattr(module, "spin", made.append)
    with thread_awaited([(7, 0.0)]) as wait:
        time.sleep(0.02)
        assert not made  # it begins with the first who waits
        for count in range(1, 6):
            wait(0.0)
            time.sleep(0.02)
            assert count <= len(made) <= count + AHEAD + 1


def test_where_no_thread_is_awaited_the_caller_sleeps() -> None:
    with thread_awaited([]) as wait:
        assert wait is time.sleep


def test_a_process_beside_works_for_as_long_as_it_is_told() -> None:
    before = set(psutil.Process().children())
    with processes_beside(5.0) as beside:
        assert beside is not None
        (worker,) = set(psutil.Process().children()) - before
        begin = cpu_seconds(worker)
        for _ in range(20):
            beside.tell()
        while cpu_seconds(worker) - begin < 0.08:  # told in hundredths of a second
            time.sleep(0.001)
    await_end(worker)


@pytest.mark.parametrize(("count", "sharing"), [(0, 2), (1, 1)])
def test_steps_keep_the_pace_of_processes_that_set_it(
    count: int, sharing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    before = set(psutil.Process().children())
    with processes_beside(50.0, set_pace=True, count=count) as beside:
        assert beside is not None
        workers = set(psutil.Process().children()) - before
        assert len(workers) == sharing
        begin = {each: cpu_seconds(each) for each in workers}

        def least_worked_s() -> float:  # it is told in hundredths of a second
            return min(cpu_seconds(each) - begin[each] for each in workers) + 0.02

        for _ in range(AHEAD * len(workers) + 2):
            beside.tell()
        assert least_worked_s() >= 0.05
        beside.caught_up()
        assert least_worked_s() >= 0.05 * (AHEAD + 1)
    for worker in workers:
        await_end(worker)


@pytest.mark.parametrize(("count", "sharing"), [(3, 3), (9, MOST_WORKERS)])
def test_as_many_processes_share_the_work_as_were_seen_to(count: int, sharing: int) -> None:
    before = set(psutil.Process().children())
    with processes_beside(1.0, set_pace=True, count=count):
        workers = set(psutil.Process().children()) - before
        assert len(workers) == sharing
    for worker in workers:
        await_end(worker)


def test_processes_that_never_rest_work_as_long_as_the_steps_are_made() -> None:
    before = set(psutil.Process().children())
    with restless_beside(2):
        workers = set(psutil.Process().children()) - before
        assert len(workers) == 2
        while min(map(cpu_seconds, workers)) < 0.05:  # though nobody tells them to
            time.sleep(0.001)
    for worker in workers:
        await_end(worker)


def test_threads_that_never_rest_hold_the_interpreter_until_it_is_over() -> None:
    before = threading.active_count()
    with restless_threads(1):
        begin = time.process_time()
        while time.process_time() - begin < 0.05:  # though this thread sleeps
            time.sleep(0.001)
    assert threading.active_count() == before


def test_processes_that_never_rest_outlive_nobody() -> None:
    code = (
        "import os, sys\n"
        "from perfdoctor.replay.beside import restless_beside\n"
        "import psutil\n"
        "with restless_beside(1):\n"
        "    print(psutil.Process().children()[0].pid, flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    pid = int(done.stdout)
    if psutil.pid_exists(pid):
        await_end(psutil.Process(pid))


@pytest.mark.parametrize("beside", [thread_beside, processes_beside])
def test_little_work_beside_is_none(beside: Any) -> None:
    with beside(0.001) as nobody:
        assert nobody is None


def test_time_that_others_take_is_no_time_of_ours() -> None:
    begin = time.thread_time()
    spin(5_000_000)
    assert time.thread_time() - begin >= 0.005
