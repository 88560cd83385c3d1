import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfdoctor.observe.agent.threads import (
    RAN_NS,
    Reading,
    ThreadWatch,
    count_ran,
    forced_switches,
    is_blocked,
    pool_name,
    read,
)
from perfdoctor.schema.run import Threads

LIMIT_S = 30.0
"""Generous: reached only where something is wrong."""
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")
WORKER = "import sys\nprint(flush=True)\nwhile sys.stdin.readline(): sum(range(3_000_000))"


def reading(ran_ns: dict[int, int], forced: dict[int, int] | None = None) -> Reading:
    none = dict.fromkeys(ran_ns, 0)
    return Reading(dict.fromkeys(ran_ns, "python"), ran_ns, none, forced or none)


@contextmanager
def thread(name: str, work: Callable[[], object] = lambda: None) -> Iterator[threading.Event]:
    """A thread that works while the event that it comes with is set."""
    working, ended = threading.Event(), threading.Event()

    def run() -> None:
        while not ended.is_set():
            if working.wait(0.01):
                work()

    found = threading.Thread(target=run, name=name)
    found.start()
    try:
        yield working
    finally:
        ended.set()
        found.join()


def watched(work: Callable[[], object]) -> Threads:
    """The threads of a window in which this is done."""
    watch = ThreadWatch()
    watch.begin()
    work()
    return watch.end(2.0)


def compute(seconds: float) -> None:
    """Take a core for so long, in this thread."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        sum(range(10_000))


@LINUX
def test_the_threads_of_a_process_are_read() -> None:
    with thread("idle"):
        found = read(os.getpid())
    assert len(found.names) == len(found.ran_ns) == len(found.forced) >= 2
    assert os.getpid() in found.names
    assert found.ran_ns[os.getpid()] > 0


def test_a_process_that_is_gone_has_no_threads() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert read(child.pid).names == {}


@LINUX
def test_threads_that_ran_in_the_window_are_counted() -> None:
    with thread("busy", lambda: compute(0.01)) as working, thread("idle"):

        def work() -> None:
            working.set()
            compute(0.1)
            while busy_ns() < 2 * RAN_NS:
                time.sleep(0.01)
            working.clear()

        before = read(os.getpid()).ran_ns
        (busy,) = (t.native_id for t in threading.enumerate() if t.name == "busy")

        def busy_ns() -> int:
            return read(os.getpid()).ran_ns[busy or 0] - before[busy or 0]

        found = watched(work)
    assert found.ran >= 2
    assert sum(found.by_name.values()) >= found.ran + 1


@LINUX
def test_idle_threads_did_not_run() -> None:
    found = watched(lambda: time.sleep(0.05))
    assert found.ran <= 1
    assert found.children == found.child_threads == 0


@LINUX
def test_a_child_that_works_is_counted_apart() -> None:
    command = [sys.executable, "-c", WORKER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin and child.stdout
        child.stdout.readline()

        def work() -> None:
            assert child.stdin
            start = sum(read(child.pid).ran_ns.values())
            child.stdin.write(b"go\n")
            child.stdin.flush()
            until = time.monotonic() + LIMIT_S
            while sum(read(child.pid).ran_ns.values()) - start < 2 * RAN_NS:
                assert time.monotonic() < until
                time.sleep(0.01)

        found = watched(work)
        child.stdin.close()
    assert (found.children, found.child_threads) == (1, 1)


def test_a_child_that_starts_in_the_window_is_counted() -> None:
    started: list[psutil.Popen] = []
    command = [sys.executable, "-c", "input()"]
    found = watched(lambda: started.append(psutil.Popen(command, stdin=subprocess.PIPE)))
    for child in started:
        child.stdin.close()
        child.wait()
    assert found.children == 1


def test_pools_of_numerical_libraries_are_told() -> None:
    import numpy  # noqa: F401  # brings its own

    pools = watched(lambda: None).pools
    assert any("blas" in pool.library for pool in pools)
    assert all(pool.threads >= 1 for pool in pools)


def test_a_thread_that_began_in_between_ran_from_nothing() -> None:
    before, after = reading({1: 5 * RAN_NS}), reading({1: 5 * RAN_NS, 2: RAN_NS})
    assert count_ran(before, after) == 1
    assert count_ran(None, after) == 2


def test_what_hardly_ran_did_not_run() -> None:
    assert count_ran(reading({1: 7}), reading({1: 6 + RAN_NS})) == 0
    assert count_ran(reading({1: 7}), reading({1: 7 + RAN_NS})) == 1


def test_forced_switches_are_those_in_between() -> None:
    before, after = reading({1: 0}, {1: 100}), reading({1: 0, 2: 0}, {1: 107, 2: 3})
    assert forced_switches(before, after) == 10
    assert forced_switches(None, after) == 110


@pytest.mark.parametrize(
    ("name", "pool"),
    [
        ("tf_XLAEigen/12", "tf_XLAEigen"),
        ("tf_XLAEigen/-81", "tf_XLAEigen"),
        ("grain_worker_3", "grain_worker"),
        ("worker-7", "worker"),
        ("Thread-1", "Thread"),
        ("python", "python"),
        ("7", "7"),
        ("", ""),
        ("0\n", "0\n"),
    ],
)
def test_threads_of_a_pool_share_its_name(name: str, pool: str) -> None:
    assert pool_name(name) == pool


@given(st.text(min_size=1, max_size=15))
def test_any_name_has_a_pool(name: str) -> None:
    assert pool_name(name)
    assert name.startswith(pool_name(name))


@pytest.mark.parametrize(
    ("main_s", "others_s", "blocked"), [(0.1, 5.0, True), (2.8, 3.0, False), (0.0, 0.5, False)]
)
def test_a_main_thread_that_waits_while_others_compute_is_blocked(
    main_s: float, others_s: float, blocked: bool
) -> None:
    main = threading.main_thread().native_id or 0
    none = Reading({}, {main: 10, 1: 10}, {}, {})
    ran = Reading({}, {main: 10 + round(main_s * 1e9), 1: 10 + round(others_s * 1e9)}, {}, {})
    assert is_blocked(none, ran, 3.0) is blocked
