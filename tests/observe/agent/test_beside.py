"""What other threads and processes of a program do, from what the kernel tells of them."""

import _thread
import os
import threading
from collections.abc import Mapping

from perfdoctor.observe.agent.beside import Beside, Worker, work_beside
from perfdoctor.observe.agent.threads import Reading

MS = 1_000_000
"""Nanoseconds."""


def beside(before: Mapping[int, Reading], after: Mapping[int, Reading], *callers: int) -> Beside:
    """What is told of two steps that this thread has made."""
    caller = threading.get_ident()
    return work_beside(before, after, caller, {caller, *callers}, steps=2)


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
    assert (found.delayed_ms, found.threads_cpu_ms, found.children_cpu_ms) == (1.0, 0.0, 3.0)
    assert found.children == 2
    assert beside({}, after) == Beside()


def test_processes_that_take_little_of_the_work_are_not_those_that_share_it() -> None:
    took_ms = (4.0, 3.0, 0.4, 0.3)
    children = [Worker(number, None, "", each) for number, each in enumerate(took_ms)]
    assert Beside(workers=(Worker(9, 1, "a thread", 50.0), *children)).children == 3
    assert Beside(workers=(Worker(9, 1, "a thread", 50.0),)).children == Beside().children == 0


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
    assert found.threads_cpu_ms == 2.0


def test_threads_that_had_no_core_are_told() -> None:
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    try:
        own, number = os.getpid(), thread.native_id or 0
        before = {own: reading({number: 0}, {number: 1 * MS})}
        after = {own: reading({number: 4 * MS}, {number: 7 * MS})}
        found = beside(before, after)
    finally:
        over.set()
        thread.join()
    assert (found.threads_cpu_ms, found.threads_delayed_ms) == (2.0, 3.0)


def test_those_that_make_no_calls_are_workers() -> None:
    own = os.getpid()
    over = threading.Event()
    thread = threading.Thread(target=over.wait, name="Thread-7 (work)")
    thread.start()
    try:
        native = thread.native_id or 0
        before = {own: reading({native: 0})}
        after = {own: reading({native: 6 * MS}), 8: reading({8: 2 * MS, 9: 2 * MS})}
        found = beside(before, after).workers
        (alone,) = beside(before, after, thread.ident or 0).workers  # it makes calls, too
    finally:
        over.set()
        thread.join()
    assert [(each.thread, each.name, each.cpu_ms) for each in found] == [
        (native, "Thread-7 (work)", 3.0),
        (None, "8", 2.0),
    ]
    assert alone.process == 8


def test_who_did_nothing_is_no_worker() -> None:
    own = os.getpid()
    before = {own: reading({}), 8: reading({8: 5 * MS})}
    assert beside(before, before).workers == ()
