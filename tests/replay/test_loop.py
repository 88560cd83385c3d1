"""A captured step, again and again, with the host's part beside it."""

import subprocess
import sys
import threading
import time
from typing import Any

import jax
import numpy as np
import psutil
import pytest

from perfdoctor.processes import cpu_seconds
from perfdoctor.replay import loop as module
from perfdoctor.replay.loop import (
    FIRST_STEPS,
    WARM_STEPS,
    Loop,
    padded,
    process_beside,
    read,
    restless_beside,
    restless_threads,
    spin,
    thread_beside,
    wait_for,
)
from perfdoctor.schema.capture import Conditions
from tests.awaited import await_end
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


def test_a_thread_beside_works_for_as_long_as_it_is_told() -> None:
    before = threading.active_count()
    with thread_beside(5.0) as tell:
        begin = time.process_time()
        for _ in range(4):
            tell()
        while time.process_time() - begin < 0.020:
            time.sleep(0.001)
    assert threading.active_count() == before


def test_a_process_beside_works_for_as_long_as_it_is_told() -> None:
    before = set(psutil.Process().children())
    with process_beside(5.0) as tell:
        (worker,) = set(psutil.Process().children()) - before
        begin = cpu_seconds(worker)
        for _ in range(20):
            tell()
        while cpu_seconds(worker) - begin < 0.08:  # told in hundredths of a second
            time.sleep(0.001)
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
        "from perfdoctor.replay.loop import restless_beside\n"
        "import psutil\n"
        "with restless_beside(1):\n"
        "    print(psutil.Process().children()[0].pid, flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    pid = int(done.stdout)
    if psutil.pid_exists(pid):
        await_end(psutil.Process(pid))


@pytest.mark.parametrize("beside", [thread_beside, process_beside])
def test_little_work_beside_is_none(beside: Any) -> None:
    with beside(0.001) as tell:
        assert tell is None


def test_time_that_others_take_is_no_time_of_ours() -> None:
    begin = time.thread_time()
    spin(5_000_000)
    assert time.thread_time() - begin >= 0.005


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
