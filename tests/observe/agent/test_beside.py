"""What other threads and processes of a program do, from what the kernel tells of them."""

import _thread
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from perfdoctor.observe.agent.beside import name_of, work_beside
from perfdoctor.observe.agent.threads import Reading

PASSED_MS = 20.0
"""In which two steps are made."""
MS = 1_000_000
"""Nanoseconds."""


def beside(
    before: Mapping[int, Reading], after: Mapping[int, Reading], *callers: int
) -> dict[str, Any]:
    """What is told of two steps that this thread has made."""
    caller = threading.get_ident()
    return work_beside(before, after, caller, {caller, *callers}, PASSED_MS, steps=2)


def reading(ran: dict[int, int], delayed: dict[int, int] | None = None) -> Reading:
    return Reading({}, ran, delayed or {}, {})


def test_what_other_threads_and_processes_do_beside() -> None:
    own = os.getpid()
    native = threading.get_native_id()
    before = {own: reading({native: 0, 5: 0}, {native: 0}), 7: reading({7: 1_000_000})}
    after = {
        own: reading({native: 9_000_000, 5: 4_000_000}, {native: 2_000_000}),
        7: reading({7: 5_000_000}),
        8: reading({8: 2_000_000}),
    }
    found = beside(before, after)
    assert found == {
        "delayed_ms": 1.0,
        "threads_cpu_ms": 0.0,
        "children_cpu_ms": 3.0,
        "restless": (),
    }
    assert beside({}, after) == {}


def test_threads_that_python_has_not_begun_are_no_work_of_the_programs() -> None:
    """XLA's own, that has run a callback, computes the step."""
    native: list[int] = []
    told, over = threading.Event(), threading.Event()

    def foreign() -> None:
        native.append(threading.current_thread().native_id or 0)
        told.set()
        over.wait()

    _thread.start_new_thread(foreign, ())
    began = threading.Thread(target=over.wait)
    began.start()
    told.wait()
    try:
        own = os.getpid()
        number = began.native_id or 0
        before = {own: reading({native[0]: 0, number: 0})}
        after = {own: reading({native[0]: 8_000_000, number: 4_000_000})}
        found = beside(before, after)
    finally:
        over.set()
        began.join()
    assert found["threads_cpu_ms"] == 2.0


@contextmanager
def thread_of_the_programs() -> Iterator[threading.Thread]:
    """Begun by Python."""
    over = threading.Event()
    thread = threading.Thread(target=over.wait, name="Thread-7 (work)")
    thread.start()
    try:
        yield thread
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize(
    ("ran_ms", "delayed_ms", "is_told"),
    [(6, 13, True), (20, 0, True), (6, 2, False), (0, 0, False)],
)
def test_a_thread_never_rests_that_ran_or_waited_for_a_core_all_the_time(
    ran_ms: int, delayed_ms: int, is_told: bool
) -> None:
    own = os.getpid()
    with thread_of_the_programs() as thread:
        native = thread.native_id or 0
        before = {own: reading({native: 0})}
        after = {own: reading({native: ran_ms * MS}, {native: delayed_ms * MS})}
        found = beside(before, after)["restless"]
        assert beside(before, after, thread.ident or 0)["restless"] == ()  # it makes calls, too
    assert [(each.name, each.is_process) for each in found] == [
        ("Thread-7 (work)", False)
    ] * is_told
    assert [each.cpu_ms for each in found] == [ran_ms / 2] * is_told


def test_a_process_never_rests_in_which_a_thread_does_not() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        after = {os.getpid(): reading({}), child.pid: reading({child.pid: 19 * MS, 5: 3 * MS})}
        (found,) = beside({os.getpid(): reading({})}, after)["restless"]
        child.kill()
    assert found.is_process and found.cpu_ms == 9.5
    assert found.name.endswith(str(child.pid)) and not found.name.startswith(str(child.pid))
    assert name_of(child.pid) == str(child.pid)  # it has ended
