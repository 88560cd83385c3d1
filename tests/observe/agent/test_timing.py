"""Calls are timed by when what they return is computed, and the program waits for nothing."""

import threading
import time
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from perfdoctor.injection.calls import Function
from perfdoctor.observe.agent import timing
from perfdoctor.observe.agent.calls import LEAST_CALLS
from perfdoctor.observe.agent.timing import FEWEST_TIMED, MARK_CALLS, Timer, copy_of_smallest
from tests.observe.agent.heard import makers


class Later:
    """A copy of something that is computed when the test says so."""

    def __init__(self) -> None:
        self.is_computed = False

    def is_ready(self) -> bool:
        return self.is_computed


def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Time as the test lets it pass, in seconds."""
    now = [1_000_000_000]

    def passes(seconds: float) -> None:
        now[0] += round(seconds * 1e9)

    monkeypatch.setattr(time, "monotonic_ns", lambda: now[0])
    return passes


def returns(outputs: Any = None, name: str = "step") -> Function:
    """A function of the program."""

    def step() -> Any:
        return outputs

    step.__name__ = name
    return Function(step)


def test_what_is_called_before_the_steps_and_no_more_is_none_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passes, evaluation, step = clock(monkeypatch), returns(name="evaluate"), returns()
    timer = Timer(jax, 1.0)
    for _ in range(3):
        passes(0.2)
        timer(evaluation, (), {})
    for _ in range(60):
        passes(0.06)
        timer(step, (), {})
    assert timer.is_told()
    assert {each.function.name for each in timer.calls} == {"step"}
    assert (timer.end_ns - timer.begin_ns) / len(timer.calls) == pytest.approx(0.06e9)


def test_a_timer_that_is_ended_tells_nothing_of_what_was_called_before_the_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passes, evaluation, step = clock(monkeypatch), returns(name="evaluate"), returns()
    timer = Timer(jax, 1e6)
    for function in [evaluation] * 3 + [step] * 60:
        passes(0.06)
        timer(function, (), {})
    assert timer.end()
    assert {each.function.name for each in timer.calls} == {"step"}


def test_a_step_of_many_functions_is_timed_by_one_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    passes, parts = clock(monkeypatch), [returns(name=f"part_{n}") for n in range(7)]
    timer = Timer(jax, 1.0)
    for call in range(60):
        passes(0.06)
        timer(parts[call % 7], (), {})
    assert timer.is_told()
    assert timer.calls[-1].function.name == "part_0" and len(timer.calls) % 7 == 0


def test_a_timer_notes_calls_from_one_that_is_computed_to_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passes, step = clock(monkeypatch), returns()
    timer = Timer(jax, 1.0)
    while not timer.is_told():
        passes(0.06)
        timer(step, (), {})
    assert len(timer.calls) == FEWEST_TIMED
    assert timer.end_ns - timer.begin_ns == FEWEST_TIMED * 60_000_000
    assert {call.thread for call in timer.calls} == {threading.get_ident()}


def test_a_timer_goes_on_for_as_long_as_it_is_to(monkeypatch: pytest.MonkeyPatch) -> None:
    passes, step = clock(monkeypatch), returns()
    timer = Timer(jax, 100.0)
    for _ in range(3 * FEWEST_TIMED):
        passes(0.06)
        timer(step, (), {})
        assert not timer.is_told()
    assert not timer.end_ns


def test_few_calls_are_enough_where_each_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    passes, step = clock(monkeypatch), returns()
    timer = Timer(jax, 1.0)
    while not timer.is_told():
        passes(2.0)
        timer(step, (), {})
    assert len(timer.calls) == LEAST_CALLS
    assert timer.end_ns - timer.begin_ns == LEAST_CALLS * 2_000_000_000


def test_calls_ahead_of_what_is_computed_are_timed_by_that(monkeypatch: pytest.MonkeyPatch) -> None:
    passes, step, copies = clock(monkeypatch), returns(), list[Later]()

    def copied(jax: Any, outputs: Any) -> Later:
        copies.append(Later())
        return copies[-1]

    def computed(copy: Later) -> None:
        passes(0.5 * MARK_CALLS)
        copy.is_computed = True

    monkeypatch.setattr(timing, "copy_of_smallest", copied)
    timer = Timer(SimpleNamespace(block_until_ready=computed), 1.0)
    for _ in range(4 * MARK_CALLS):  # no time passes: all are called at once
        timer(step, (), {})
    assert len(copies) == 4
    assert timer.is_told()
    assert len(timer.calls) == 2 * MARK_CALLS
    assert timer.end_ns - timer.begin_ns == len(timer.calls) * 500_000_000


def test_the_shorter_steps_are_the_fewer_of_them_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is told of a step takes 0.1 ms; of steps of 1 ms, one in 32 ms is enough."""
    passes, step, pending = clock(monkeypatch), returns(), list[Later]()

    def copied(jax: Any, outputs: Any) -> Later:
        pending.append(Later())
        return pending[-1]

    monkeypatch.setattr(timing, "copy_of_smallest", copied)
    timer = Timer(SimpleNamespace(block_until_ready=lambda copy: None), 1.0)
    while not timer.is_told():
        for _ in range(MARK_CALLS):  # each is computed as the next one is told
            passes(0.001)
            for copy in pending[:-1]:
                copy.is_computed = True
            timer(step, (), {})
        for copy in pending:
            copy.is_computed = True
    assert len(pending) < 1000 / MARK_CALLS / 2
    assert timer.end_ns - timer.begin_ns == len(timer.calls) * 1_000_000


def test_what_was_computed_before_the_next_call_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passes, step, copy = clock(monkeypatch), returns(), Later()
    monkeypatch.setattr(timing, "copy_of_smallest", lambda jax, outputs: copy)
    timer = Timer(jax, 1.0)
    timer(step, (), {})
    passes(0.003)
    copy.is_computed = True
    timer(step, (), {})
    passes(1.0)
    assert not timer.is_told()
    assert timer.begin_ns == 1_003_000_000


def test_steps_are_timed_from_one_call_to_the_same_one(monkeypatch: pytest.MonkeyPatch) -> None:
    passes, first, second = clock(monkeypatch), returns(), returns(name="update")
    timer = Timer(jax, 1.0)
    while not timer.is_told():
        passes(0.06)
        timer(first, (), {})
        timer(second, (), {})
    assert [call.function.name for call in timer.calls] == ["update", "step"] * (
        len(timer.calls) // 2
    )


def test_a_timer_does_not_begin_in_a_call_of_a_function_that_is_traced() -> None:
    timer = Timer(jax, 0.0)
    made, _ = makers(timer)
    inner = made.jit(lambda x: x + 1)
    outer = jax.jit(lambda x: inner(x) * 2)
    assert outer(1.0) == 4.0
    assert not timer.is_told() and not timer.begin_ns


def test_what_can_not_be_copied_is_told_by_the_program_alone() -> None:
    gone = jnp.ones(3)
    gone.delete()
    timer = Timer(jax, 0.0)
    step = returns(gone)
    while not timer.is_told():
        assert timer(step, (), {}) is gone


def test_a_call_that_raises_is_not_timed() -> None:
    timer = Timer(jax, 1e6)
    made, _ = makers(timer)
    fails = made.jit(lambda x: x / (1 // 0))
    with pytest.raises(ZeroDivisionError):
        fails(1.0)
    assert timer.calls == []


def test_the_copy_is_of_the_smallest_array_and_the_programs_own_is_let_go() -> None:
    key, large, small = jax.random.key(0), jnp.ones(100), jnp.full(2, 7.0)
    copy = copy_of_smallest(jax, {"key": key, "large": large, "small": small, "number": 3})
    gone = weakref.ref(small)
    del small
    assert gone() is None
    assert list(copy) == [7.0, 7.0]
    assert copy_of_smallest(jax, (key, 3)) is None


def test_results_that_are_all_large_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "MOST_COPIED_BYTES", 8)
    waited = list[Any]()
    noting = SimpleNamespace(
        tree_util=jax.tree_util,
        Array=jax.Array,
        dtypes=jax.dtypes,
        block_until_ready=waited.append,
    )
    small, large = jnp.ones(3), jnp.ones(30)
    assert copy_of_smallest(noting, (large, small)) is None
    assert [each.shape for each in waited] == [(3,)]


def test_a_timer_that_is_ended_tells_what_was_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "MARK_S", 0.0)
    timer = Timer(jax, 1e6)
    step = Function(jax.jit(lambda p: p + 1))
    assert not timer.end()
    p = jnp.zeros(8)
    for _ in range(100):
        p = timer(step, (p,), {})
    jax.block_until_ready(p)
    assert timer.end()
    assert 4 <= len(timer.calls) <= 100
    assert timer.end_ns >= timer.begin_ns > 0


def test_what_is_computed_late_counts_where_else_too_few_calls_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On busy cores copies are late; a short program has ended by then."""
    copies: list[Later] = []

    def copy(_: Any, __: Any) -> Later:
        copies.append(Later())
        copies[-1].is_computed = len(copies) <= 2
        return copies[-1]

    monkeypatch.setattr(timing, "MARK_S", 0.0)
    monkeypatch.setattr(timing, "copy_of_smallest", copy)
    timer = Timer(jax, 1e6)
    for _ in range(20):
        timer(returns(), (), {})
    assert not timer.end()
    for late in copies:
        late.is_computed = True
    assert timer.end()
    assert len(timer.calls) == 19
