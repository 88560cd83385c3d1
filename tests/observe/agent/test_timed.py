"""Steps that are timed, and what the process does meanwhile; how often is told in test_step.py."""

import ctypes
import mmap
import os
import threading

import jax
import pytest

from perfdoctor.injection.calls import Function
from perfdoctor.observe.agent.threads import readings
from perfdoctor.observe.agent.timed import TimedSteps, steps_in
from perfdoctor.observe.agent.timing import Timed, Timer
from perfdoctor.schema.recording import CollectionEvent

PAGES = 300


def touch(memory: mmap.mmap) -> None:
    """Each of its pages, for the first time."""
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    for page in range(PAGES):
        memory[page * mmap.PAGESIZE] = 1


def test_pages_that_a_thread_touches_first_are_counted() -> None:
    before = readings()[os.getpid()].faults
    with mmap.mmap(-1, PAGES * mmap.PAGESIZE) as memory:
        touch(memory)
    after = readings()[os.getpid()].faults
    mine = threading.get_native_id()
    assert after[mine] - before[mine] >= PAGES


def test_pages_that_python_touches_are_none_of_the_steps() -> None:
    before = readings()
    with mmap.mmap(-1, PAGES * mmap.PAGESIZE) as memory:
        touch(memory)
    assert TimedSteps(Timer(jax, 1.0), before, readings(), 0, 1).faults < PAGES


def test_pages_that_another_librarys_thread_touches_are_the_steps() -> None:
    """A thread of the C library, as XLA's are."""
    pthread, libc = ctypes.c_ulong(), ctypes.CDLL(None)
    stays, went = threading.Event(), threading.Event()

    with mmap.mmap(-1, PAGES * mmap.PAGESIZE) as memory:
        memory.madvise(mmap.MADV_NOHUGEPAGE)

        def touching(_: object) -> None:
            for page in range(PAGES):
                memory[page * mmap.PAGESIZE] = 1
            went.set()
            stays.wait()

        run = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(touching)
        before = readings()
        libc.pthread_create(ctypes.byref(pthread), None, run, None)
        went.wait()
        timed = TimedSteps(Timer(jax, 1.0), before, readings(), 0, 1)
        assert timed.faults >= PAGES
        stays.set()
        libc.pthread_join(pthread, None)


def test_collections_of_others_are_counted_where_their_processor_time_is() -> None:
    caller = threading.get_ident()
    ms = 1_000_000
    events = [
        CollectionEvent(
            generation=2,
            start_ns=start * ms,
            end_ns=end * ms,
            collected=0,
            frame=("", 0, ""),
            source="",
            thread=thread,
        )
        for thread, start, end in ((1, -2, 4), (caller, 4, 5), (1, 6, 9), (1, 18, 30))
    ]
    timed = TimedSteps(Timer(jax, 1.0), readings(), readings(), 0, 20 * ms)
    assert timed.beside(2.0, caller, events).collecting_ms == pytest.approx((4 + 3 + 2) / 10)


def batches(x: float) -> float:
    return x


def scored(x: float) -> float:
    return x


def test_ten_steps_and_a_mean_over_them_are_ten_steps() -> None:
    step, score = Function(batches), Function(scored)
    made = [*[step] * 10, score] * 3
    calls = [Timed(1, each, 10 * n, 10 * n + 5) for n, each in enumerate(made)]
    assert steps_in(calls, [step.number]) == 30
    assert steps_in(calls, [step.number, step.number]) == 15
    assert steps_in([], [step.number]) == 0


def test_another_function_of_the_same_name_makes_no_steps() -> None:
    step, evaluation = Function(batches), Function(batches)
    calls = [
        Timed(1, each, 10 * n, 10 * n + 5) for n, each in enumerate([step, step, evaluation] * 2)
    ]
    assert steps_in(calls, [step.number]) == 4


def test_what_is_jitted_anew_in_each_step_makes_steps() -> None:
    made = [Function(batches) for _ in range(5)]
    calls = [Timed(1, each, 10 * n, 10 * n + 5) for n, each in enumerate(made)]
    assert steps_in(calls, [made[0].origin]) == 5
