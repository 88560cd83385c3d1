"""A call is held up, for a moment."""

import threading
import time
from collections.abc import Callable

import jax
import pytest

from perfdoctor.injection.calls import Function, Hearing
from perfdoctor.observe.agent import hold as module
from perfdoctor.observe.agent.hold import Hold, let_compute


def test_a_call_is_held_for_so_long_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONGEST_S", 0.01)
    hold = Hold(jax)
    assert hold(Function(lambda x: x + 1), (1,), {}) == 2
    assert hold.held.is_set() and not hold.over.is_set()


def wait_for(condition: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.001)


def test_the_next_call_waits_until_ours_is_computed() -> None:
    """A program that calls one step after the other, while what we want has no turn."""
    hearing, order, computed = Hearing(), list[str](), threading.Event()

    def step(x: int) -> int:
        order.append("step")
        return x + 1

    def program() -> None:
        while hearing.hear is None:
            time.sleep(0.001)
        threading.Timer(0.1, compute).start()
        hearing.hear(Function(step), (1,), {})

    def compute() -> None:
        order.append("ours")
        computed.set()

    thread = threading.Thread(target=program)
    thread.start()
    let_compute(jax, hearing, wait_for, computed.is_set)
    thread.join()
    assert order == ["ours", "step"] and hearing.hear is None


def test_nothing_is_held_where_all_is_computed() -> None:
    hearing = Hearing()
    let_compute(jax, hearing, lambda *_: pytest.fail("nothing is waited for"), lambda: True)
    assert hearing.hear is None
