"""What is learned of jitted calls while they are made, and that they are as ever."""

import threading
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from perfdoctor.observe.agent.calls import (
    FEWEST_PROBED,
    MOST_PROBED,
    PROBED,
    Prober,
    is_tracing,
)
from tests.observe.agent.heard import makers, probed

OLD_JAX = jax.__version__.startswith("0.8.")


def test_no_array_is_kept_alive() -> None:
    prober = Prober(jax)
    made, _ = makers(prober)
    add = made.jit(lambda x, y: x + y)
    x, y = jnp.ones(10), jnp.zeros(10)
    z = jax.block_until_ready(add(x, y))
    gone = [weakref.ref(each) for each in (x, y, z)]
    del x, y, z
    assert [each() is None for each in gone] == [True, True, True]


def test_an_address_of_an_array_that_died_is_no_mark_of_the_next_one() -> None:
    prober = Prober(jax)
    made, _ = makers(prober)
    total = made.jit(lambda x: x.sum())
    for _ in range(20):
        total(np.ones(1000, np.float32))  # the heap gives out the same place again
    numbers = [call.inputs[0].number for call in prober.calls]
    assert len(set(numbers)) == len(numbers)


def test_our_own_trouble_is_none_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    prober = Prober(jax)
    made, _ = makers(prober)
    add = made.jit(lambda x: x + 1)
    monkeypatch.setattr("perfdoctor.observe.agent.calls.form_of", lambda *_: 1 / 0)
    assert add(1.0) == 2.0
    assert prober.failure == "ZeroDivisionError: division by zero"
    assert prober.done.is_set() and prober.calls == []


def test_trouble_with_results_is_none_either(monkeypatch: pytest.MonkeyPatch) -> None:
    prober = Prober(jax)
    made, _ = makers(prober)
    monkeypatch.setattr(prober, "_note", lambda *_: 1 / 0)
    assert made.jit(lambda x: x + 1)(1.0) == 2.0
    assert prober.done.is_set()


def test_a_call_that_raises_is_not_probed() -> None:
    prober = Prober(jax)
    made, _ = makers(prober)
    with pytest.raises(ZeroDivisionError):
        made.jit(lambda x: x / (1 // 0))(1.0)
    assert prober.calls == [] and prober.failure is None


def test_calls_of_a_function_that_is_traced_are_not_probed() -> None:
    prober = Prober(jax)
    made, _ = makers(prober)
    inner = made.jit(lambda x: x + 1)
    outer = made.jit(lambda x: jax.lax.scan(lambda c, _: (inner(c), None), x, length=3)[0])
    assert outer(1.0) == 4.0
    assert [call.function.name for call in prober.calls] == ["<lambda>"]
    assert prober.calls[0].function.jitted is outer._perfdoctor_function.jitted


def test_whether_jax_traces_is_told() -> None:
    seen: list[bool] = []

    def look(x: Any) -> Any:
        seen.append(is_tracing())
        return x

    jax.jit(look)(1.0)
    assert seen == [True]
    assert not is_tracing()


def test_it_has_begun_while_the_first_call_waits_for_those_before_it() -> None:
    prober, computed = Prober(jax), threading.Event()
    made, _ = makers(prober)
    add = made.jit(lambda x: x + 1)
    assert not prober.begun.is_set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prober.shapes, "note", lambda *_: computed.wait())
        caller = threading.Thread(target=add, args=(1.0,))
        caller.start()
        assert prober.begun.wait(60.0) and prober.calls == []
        computed.set()
        caller.join()
    assert len(prober.calls) == 1


def test_it_is_enough_after_some_calls() -> None:
    prober = Prober(jax)
    made, _ = makers(prober)
    add = made.jit(lambda x: x + 1)
    for _ in range(PROBED + 10):
        add(1.0)
    assert prober.done.is_set()
    assert len(prober.calls) == PROBED
    assert all(call.begin_ns <= call.end_ns for call in prober.calls)


def test_a_thread_that_calls_seldom_is_looked_at_too() -> None:
    prober = Prober(jax)
    made, _ = makers(prober)
    act, learn = made.jit(lambda x: x + 1), made.jit(lambda x: x - 1)

    def learner() -> None:
        for _ in range(FEWEST_PROBED):
            turns[0].acquire()
            learn(1.0)
            turns[1].release()

    turns = [threading.Semaphore(0), threading.Semaphore(0)]
    thread = threading.Thread(target=learner)
    thread.start()
    for _ in range(FEWEST_PROBED):
        for _ in range(PROBED // 3):
            act(1.0)
        turns[0].release()
        turns[1].acquire()
    thread.join()
    assert prober.done.is_set()
    assert sum(call.thread != threading.get_ident() for call in prober.calls) == FEWEST_PROBED
    assert len(prober.calls) > PROBED


def test_but_not_for_ever() -> None:
    prober = Prober(jax)
    made, _ = makers(prober)
    act = made.jit(lambda x: x + 1)
    thread = threading.Thread(target=act, args=(1.0,))
    thread.start()
    thread.join()
    for _ in range(MOST_PROBED + 10):
        act(1.0)
    assert len(prober.calls) == MOST_PROBED


def test_whether_the_last_results_were_computed_is_told() -> None:
    def program(made: Any) -> Any:
        add = made.jit(lambda x: x + 1)
        x = jnp.ones(10)
        while True:
            x = jax.block_until_ready(add(x))
            yield

    assert all(call.ready for call in probed(program)[0].calls)


@pytest.mark.parametrize("threads", [2, 4])
def test_calls_of_several_threads(threads: int) -> None:
    prober = Prober(jax)
    made, _ = makers(prober)
    add = made.jit(lambda x: x + 1)
    add(0.0)

    def work() -> None:
        x = jnp.zeros(3)
        for _ in range(10):
            x = add(x)

    running = [threading.Thread(target=work) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert prober.failure is None
    assert len(prober.calls) == 10 * threads + 1


def test_where_a_function_is_called_is_told_though_it_was_compiled_elsewhere() -> None:
    prober = Prober(jax)
    made, _ = makers(prober)
    step = made.jit(lambda x: x + 1)

    def training_loop() -> None:
        for _ in range(3):
            step(0.0)

    training_loop()
    (stack,) = prober.stacks[step.__name__]
    assert stack[0][0] == __file__
    assert stack[0][2].endswith("training_loop")
