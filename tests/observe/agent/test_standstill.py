"""Who works on while a step stands still: real threads and processes."""

import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import psutil
import pytest

from perfdoctor.injection.calls import Function, Hearing
from perfdoctor.observe.agent import standstill
from perfdoctor.observe.agent.beside import Worker
from perfdoctor.observe.agent.standstill import (
    at_standstill,
    is_worthwhile,
    name_of,
    runs_another_program,
    who_works_on,
)
from perfdoctor.schema.calls import Restless

STEP_MS = 10.0
SPINNING = "while True: pass"
POOL = """
import multiprocessing, sys, time
worker = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(60,), daemon=True)
worker.start()
print(worker.pid, flush=True)
sys.stdin.read()
"""
"""Its worker's process, whose id it prints, ends with it."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few short looks."""
    monkeypatch.setattr(standstill, "LOOKS", 3)
    monkeypatch.setattr(standstill, "LOOK_S", 0.15)


def seen(*workers: Worker) -> tuple[Restless, ...]:
    """Who works on, though this thread makes no steps."""
    return who_works_on(workers, STEP_MS)


@contextmanager
def running(work: Callable[[threading.Event], None]) -> Iterator[Worker]:
    """A thread, which had half a core while steps were made."""
    over = threading.Event()
    thread = threading.Thread(target=work, args=(over,), name="worker", daemon=True)
    thread.start()
    try:
        yield Worker(os.getpid(), thread.native_id, thread.name, STEP_MS / 2)
    finally:
        over.set()
        thread.join()


@contextmanager
def process(code: str) -> Iterator[Worker]:
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as child:
        try:
            while not psutil.Process(child.pid).cmdline():  # the kernel has not put it there yet
                time.sleep(0.01)
            yield Worker(child.pid, None, str(child.pid), STEP_MS / 2)
        finally:
            child.kill()


def spin(over: threading.Event) -> None:
    while not over.is_set():
        pass


def test_a_thread_that_spins_works_on_and_holds_the_interpreter() -> None:
    with running(spin) as worker:
        (found,) = seen(worker)
    assert (found.name, found.is_process, found.cpu_ms) == ("worker", False, STEP_MS / 2)
    assert found.holds_interpreter and found.cores > 0


def test_a_process_that_spins_works_on_and_leaves_the_interpreter() -> None:
    with process(SPINNING) as worker:
        (found,) = seen(worker)
    assert found.is_process and not found.holds_interpreter
    assert found.name.endswith(str(worker.process)) and found.name != str(worker.process)
    assert name_of(worker) == str(worker.process)  # it has ended


def test_who_fills_a_queue_rests_once_it_is_full() -> None:
    ready: queue.Queue[bytes] = queue.Queue(2)

    def load(over: threading.Event) -> None:
        while not over.is_set():
            try:
                ready.put(bytes(1000), timeout=0.05)
            except queue.Full:
                continue

    with running(load) as worker:
        assert seen(worker) == ()


def test_only_those_that_work_on_are_told() -> None:
    with process(SPINNING) as spinning, process("input()") as resting:
        found = seen(spinning, resting)
    assert [each.name.split()[-1] for each in found] == [str(spinning.process)]


def test_nobody_is_held_up_for_little() -> None:
    little = Worker(os.getpid(), 1, "worker", STEP_MS / 100)
    assert not is_worthwhile((little,), STEP_MS)
    assert is_worthwhile((little,) * 11, STEP_MS)


def test_a_program_is_held_up_while_it_is_looked_at() -> None:
    hearing, steps = Hearing(), []
    step = Function(jax.jit(lambda x: x + 1))

    def train(over: threading.Event) -> None:
        x = jnp.ones(())
        while not over.is_set():
            hear = hearing.hear
            x = hear(step, (x,), {}) if hear else step.jitted(x)
            steps.append(time.monotonic())

    def wait_for(condition: Callable[[], bool], seconds: float) -> None:
        while not condition():
            time.sleep(0.001)

    with running(train), process(SPINNING) as spinning:
        steps.append(time.monotonic())
        (found,) = at_standstill(jax, hearing, wait_for, [spinning], STEP_MS)
    assert found.is_process and hearing.hear is None
    looked_s = standstill.LOOKS * standstill.LOOK_S
    longest_s = max(after - before for before, after in pairwise(steps))
    assert longest_s >= looked_s  # none was made meanwhile


def test_a_program_that_is_far_ahead_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standstill, "PATIENCE_S", 0.1)
    hearing, computed = Hearing(), threading.Event()
    step = Function(jax.jit(lambda x: x + 1))
    waits: list[float] = []

    def wait_for(condition: Callable[[], bool], seconds: float) -> None:
        waits.append(seconds)
        if seconds > standstill.PATIENCE_S:
            computed.set()  # what was called before
        until = time.monotonic() + seconds
        while not condition() and time.monotonic() < until:
            time.sleep(0.001)

    def train(over: threading.Event) -> None:
        while not over.is_set():
            hear = hearing.hear
            if hear:
                hear(step, (jnp.ones(()),), {})

    far_ahead: Any = SimpleNamespace(block_until_ready=lambda _: computed.wait())
    with running(train), process(SPINNING) as spinning:
        (found,) = at_standstill(far_ahead, hearing, wait_for, [spinning], STEP_MS)
    assert found.is_process and len(waits) == 2


def test_nobody_is_held_up_where_nobody_works_beside() -> None:
    hearing = Hearing()
    assert at_standstill(jax, hearing, lambda *_: None, [], STEP_MS) == ()
    busy = Worker(os.getpid(), 1, "worker", STEP_MS)
    assert at_standstill(jax, hearing, lambda *_: None, [busy], STEP_MS) == ()  # no call was made
    assert hearing.hear is None


def test_another_program_is_told_from_a_worker_of_a_pool() -> None:
    with process(SPINNING) as other:
        assert runs_another_program(other.process)
        (found,) = seen(other)
        assert found.is_process and found.is_program
    command = [sys.executable, "-c", POOL]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdout
        worker = int(program.stdout.readline())
        assert not runs_another_program(worker)
    assert not runs_another_program(worker)  # it has ended with its program
