"""What the arguments of a step's calls are to the program, from one step to the next."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.experimental import checkify

from perfdoctor.observe.agent.calls import Prober
from perfdoctor.observe.agent.roles import (
    asks_a_learner,
    for_nobody,
    is_update,
    probe_of,
    step_of,
)
from perfdoctor.observe.agent.span import span_of
from perfdoctor.observe.agent.timing import Timed, Timer
from tests.observe.agent.heard import leaves, makers, probed, roles

SHAPE = (64,)


def batches() -> Any:
    """New ones, as a loader makes them."""
    random = np.random.default_rng(0)
    while True:
        yield random.standard_normal(SHAPE, np.float32)


@pytest.mark.parametrize("donate", [(), (0,)])
def test_state_constants_and_new_data(donate: tuple[int, ...]) -> None:
    def program(made: Any) -> Any:
        step = made.jit(lambda p, x, table: p + x * table, donate_argnums=donate)
        p, table = jnp.zeros(SHAPE), jnp.ones(SHAPE)
        for x in batches():
            p = step(p, x, table)
            yield

    found = leaves(program)
    assert {name: leaf.role for name, leaf in found.items()} == {
        "p": "state",
        "x": "new",
        "table": "constant",
    }
    assert found["p"].source == (0, 0)
    assert found["p"].donated == bool(donate)


def test_a_function_that_checks_itself_is_told() -> None:
    def program(made: Any) -> Any:
        checked = made.jit(checkify.checkify(lambda p: p + 1, errors=checkify.nan_checks))
        plain, p = made.jit(lambda p: p * 2), jnp.zeros(SHAPE)
        while True:
            _, p = checked(plain(p))
            yield

    _, found = probed(program)
    assert found is not None
    assert sorted(call.is_checked for call in found.calls) == [False, True]


def test_numbers() -> None:
    def program(made: Any) -> Any:
        step = made.jit(lambda p, i, rate: p + i * rate)
        p, i = jnp.zeros(SHAPE), 0
        while True:
            p = step(p, i, 0.1)
            i += 1
            yield

    assert roles(program) == {"p": "state", "i": "new", "rate": "constant"}


def test_keys() -> None:
    def program(made: Any) -> Any:
        step = made.jit(lambda k, j, first: (jax.random.split(k)[0], j + jax.random.normal(first)))
        key, first, j = jax.random.key(0), jax.random.key(1), jnp.zeros(())
        while True:
            key, j = step(key, j, first)
            yield

    found = leaves(program)
    assert {name: (leaf.role, leaf.kind) for name, leaf in found.items()} == {
        "k": ("state", "key"),
        "j": ("state", "device"),
        "first": ("constant", "key"),
    }


def test_a_result_that_makes_a_way_over_the_host_is_state() -> None:
    def program(made: Any) -> Any:
        step = made.jit(lambda p: p + 1)
        p = np.zeros(SHAPE, np.float32)
        while True:
            p = np.asarray(step(p))
            yield

    found = leaves(program)
    assert (found["p"].role, found["p"].kind) == ("state", "host")


def test_donated_state_that_is_fetched_and_handed_over_again_is_state() -> None:
    def program(made: Any) -> Any:
        step = made.jit(
            lambda p, x: ({"w": p["w"] + x.sum(), "n": p["n"] + 1}, x.max()), donate_argnums=0
        )
        p = {"w": np.zeros(SHAPE, np.float32), "n": np.zeros((), np.int32)}
        for x in batches():
            p, _ = step(p, x)
            p = jax.tree.map(np.array, p)  # copies: the device's arrays are gone
            yield

    found = leaves(program, steps=40)
    assert {name: leaf.role for name, leaf in found.items()} == {
        "p['w']": "state",
        "p['n']": "state",
        "x": "new",
    }
    assert found["p['w']"].source == (0, 1)


def test_predictions_of_the_same_shape_as_labels_make_these_no_state() -> None:
    def program(made: Any) -> Any:
        step = made.jit(lambda p, y: (p + y.sum(), y + 1))
        p = jnp.zeros(SHAPE)
        for y in batches():
            p, _ = step(p, y)
            yield

    assert roles(program, steps=40) == {"p": "state", "y": "new"}


def test_a_table_that_is_copied_anew_in_each_step_is_constant() -> None:
    def program(made: Any) -> Any:
        step = made.jit(lambda p, x: p + x)
        p, table = jnp.zeros(SHAPE), np.ones(SHAPE, np.float32)
        while True:
            p = step(p, table.copy())
            yield

    assert roles(program) == {"p": "state", "x": "constant"}


def test_a_result_that_is_wrapped_anew_is_state() -> None:
    def program(made: Any) -> Any:
        step = made.jit(lambda p: p + 1)
        p, device = jnp.zeros(SHAPE), jax.devices()[0]
        while True:
            result = step(p)
            p = jax.device_put(result, device)
            assert p is not result
            yield

    assert roles(program) == {"p": "state"}


def test_a_constant_that_is_wrapped_anew_is_constant() -> None:
    def program(made: Any) -> Any:
        step = made.jit(lambda p, x: p + x)
        p, table = jnp.zeros(SHAPE), np.ones(SHAPE, np.float32)
        views = [table[:]]
        while True:
            views.append(table[:])
            p = step(p, views[-1])
            yield

    assert roles(program)["x"] == "constant"


def test_a_buffer_that_is_filled_anew_is_new() -> None:
    def program(made: Any) -> Any:
        step = made.jit(lambda p, x: p + x)
        p, buffer = jnp.zeros(SHAPE), np.zeros(SHAPE, np.float32)
        for x in batches():
            buffer[:] = x
            p = step(p, buffer)
            jax.block_until_ready(p)
            yield

    assert roles(program) == {"p": "state", "x": "new"}


def test_a_place_in_memory_that_is_used_again_makes_no_state() -> None:
    def program(made: Any) -> Any:
        step = made.jit(lambda x: x * 2)
        for x in batches():
            float(step(jnp.array(x))[0])  # dead at once, and its place is free again
            yield

    assert roles(program, steps=40) == {"x": "new"}


def test_gradients_clipping_and_update_in_three_functions() -> None:
    def program(made: Any) -> Any:
        grad = made.jit(jax.grad(lambda p, x: ((p * x) ** 2).mean()))
        clip = made.jit(lambda g: jnp.clip(g, -1, 1))
        update = made.jit(lambda p, g: p - 0.1 * g, donate_argnums=0)
        p = jnp.ones(SHAPE)
        for x in batches():
            p = update(p, clip(grad(p, x)))
            yield

    _, probe = probed(program)
    assert probe is not None
    found = [[(leaf.role, leaf.source) for leaf in call.leaves] for call in probe.calls]
    begins = [call.leaves[0].argument for call in probe.calls].index("g")
    order = [(begins - 1 + n) % 3 for n in range(3)]  # the longest gap may be anywhere
    grad, clip, update = (found[n] for n in order)
    assert grad == [("state", (order[2], 0)), ("new", None)]
    assert clip == [("state", (order[0], 0))]
    assert update == [("state", (order[2], 0)), ("state", (order[1], 0))]


def test_gradients_of_four_batches() -> None:
    def program(made: Any) -> Any:
        add = made.jit(lambda p, acc, x: acc + p * x)
        update = made.jit(lambda p, acc: (p - acc, jnp.zeros_like(acc)))
        p, acc, some = jnp.ones(SHAPE), jnp.zeros(SHAPE), batches()
        while True:
            for _ in range(4):
                acc = add(p, acc, next(some))
            p, acc = update(p, acc)
            yield

    _, probe = probed(program)
    assert probe is not None
    names = [len(call.leaves) for call in probe.calls]
    assert sorted(names) == [2, 3, 3, 3, 3]
    assert {leaf.argument: leaf.role for call in probe.calls for leaf in call.leaves} == {
        "p": "state",
        "acc": "state",
        "x": "new",
    }


def test_a_target_network_that_changes_rarely_is_constant() -> None:
    def program(made: Any) -> Any:
        step = made.jit(lambda p, target, x: p + target * x)
        p = target = jnp.ones(SHAPE)
        for number, x in enumerate(batches()):
            p = step(p, target, x)
            if number % 8 == 7:
                target = p
            yield

    assert roles(program, steps=30) == {"p": "state", "target": "constant", "x": "new"}


def test_a_function_that_is_jitted_anew_in_each_step() -> None:
    def program(made: Any) -> Any:
        p = jnp.ones(SHAPE)
        for x in batches():
            p = made.jit(lambda p, x: p + x)(p, x)
            yield

    prober, probe = probed(program, steps=20)
    assert len({call.function.number for call in prober.calls}) == 20
    assert probe is not None
    (call,) = probe.calls
    assert [leaf.role for leaf in call.leaves] == ["state", "new"]
    assert probe.keys == (prober.calls[0].function.origin,)


def test_two_functions_of_one_origin_are_told_apart() -> None:
    def program(made: Any) -> Any:
        def stepper(rate: float) -> Any:
            return made.jit(lambda p: p - rate)

        actor, critic = stepper(0.1), stepper(0.2)
        a = c = jnp.ones(SHAPE)
        while True:
            a, c = actor(a), critic(c)
            yield

    _, probe = probed(program)
    assert probe is not None
    assert len(set(probe.keys)) == 2
    assert [call.leaves[0].source for call in probe.calls] == [(0, 0), (1, 0)]


def test_an_evaluation_now_and_then_is_no_part_of_the_step() -> None:
    def program(made: Any) -> Any:
        step, evaluate = made.jit(lambda p, x: p + x), made.jit(lambda p: p.mean())
        p = jnp.ones(SHAPE)
        for number, x in enumerate(batches()):
            p = step(p, x)
            if number % 25 == 9:
                evaluate(p)
            yield

    assert roles(program, steps=60) == {"p": "state", "x": "new"}


def test_keyword_arguments() -> None:
    def program(made: Any) -> Any:
        step = made.jit(lambda p, *, x, n: p + x * n, donate_argnames="p", static_argnames="n")
        p = jnp.ones(SHAPE)
        for x in batches():
            p = step(p, x=x, n=2)
            yield

    found = leaves(program)
    assert {name: (leaf.role, leaf.donated) for name, leaf in found.items()} == {
        "p": ("state", True),
        "x": ("new", False),
    }


def test_an_optimiser_with_its_state() -> None:
    optimiser = optax.adam(1e-3)

    def program(made: Any) -> Any:
        def update(params: Any, state: Any, x: Any) -> Any:
            grads = jax.grad(lambda p: ((p["w"] * x + p["b"]) ** 2).mean())(params)
            updates, state = optimiser.update(grads, state)
            return optax.apply_updates(params, updates), state

        step = made.jit(update)
        params = {"w": jnp.ones(SHAPE), "b": jnp.zeros(SHAPE)}
        state = optimiser.init(params)
        for x in batches():
            params, state = step(params, state, x)
            yield

    found = roles(program)
    assert found.pop("x") == "new"
    assert set(found.values()) == {"state"}
    assert "params['w']" in found and any("mu" in name for name in found)


def test_too_few_calls_tell_no_step() -> None:
    def program(made: Any) -> Any:
        step = made.jit(lambda p: p + 1)
        p = jnp.zeros(SHAPE)
        while True:
            p = step(p)
            yield

    prober, probe = probed(program, steps=2)
    assert probe is None
    prober.calls.clear()
    assert probe_of(prober) is None


def evaluating(made: Any) -> Any:
    """After each tenth step; nobody takes what that returns."""
    step, evaluate = made.jit(lambda p, x: p + x), made.jit(lambda p: p.sum())
    p = jnp.zeros(SHAPE)
    for number, x in enumerate(batches()):
        p = step(p, x)
        if number % 10 == 0:
            evaluate(p)
        yield


def test_what_is_done_seldom_for_nobody_is_left_aside_where_few_steps_were_probed() -> None:
    prober, _ = probed(evaluating, steps=12)
    (aside,) = for_nobody(prober)
    functions = {call.function.number: call.function for call in prober.calls}
    timer = Timer(jax, 1.0)
    timer.begin_ns, timer.end_ns = 0, 60_000
    order = [number for number in functions if number != aside] * 10 + [aside]
    timer.calls = [
        Timed(1, functions[number], n * 1000, n * 1000 + 10)
        for n, number in enumerate(order * 5 + order[:5])
    ]
    whole = span_of(timer.calls, 0, 60_000)
    assert whole is not None and whole.period == 11
    told = step_of(timer, prober)
    assert told is not None
    span, probe = told
    assert (span.period, span.steps) == (1, 55)
    assert [[leaf.role for leaf in call.leaves] for call in probe.calls] == [["state", "new"]]


def test_a_step_whose_state_goes_over_the_host_is_for_those_who_take_it() -> None:
    def program(made: Any) -> Any:
        act = made.jit(lambda p, x: (x * p["w"]).sum() + p["b"])
        step = made.jit(lambda p, x: ({"b": p["b"] + x, "w": p["w"] * x.sum()}, x))
        p: Any = {"b": jnp.zeros(SHAPE), "w": jnp.ones(SHAPE)}
        for number, x in enumerate(batches()):
            act(p, x)
            if number % 10 == 9:
                p, _ = step(p, x)
                p = jax.tree.map(lambda each: jax.device_put(np.array(each) / 2), p)
            yield

    prober, _ = probed(program, steps=60)
    assert for_nobody(prober) == frozenset()


def test_an_update_that_follows_several_gradients_is_for_them() -> None:
    def program(made: Any) -> Any:
        gradient, update = made.jit(lambda p, x: p * x), made.jit(lambda p, g: p - g)
        p = jnp.zeros(SHAPE)
        for number, x in enumerate(batches()):
            found = gradient(p, x)
            if number % 8 == 7:
                p = update(p, found)
            yield

    prober, _ = probed(program, steps=40)
    assert for_nobody(prober) == frozenset()


def test_where_nobody_takes_anything_nothing_is_left_aside_that_is_called_often() -> None:
    def program(made: Any) -> Any:
        answer = made.jit(lambda x: x + 1)
        for x in batches():
            answer(x)
            yield

    prober, _ = probed(program)
    assert for_nobody(prober) == frozenset()


def test_a_function_that_returns_two_arrays_like_one_that_it_takes_changes_no_state() -> None:
    def program(made: Any) -> Any:
        act = made.jit(lambda x: (x + 1, x - 1))
        learn = made.jit(lambda w, v, x: (w + x.sum(), v * 2))
        w, v = jnp.zeros((3, 4)), jnp.zeros((3, 4))
        for x in batches():
            act(x)
            w, v = learn(w, v, x)
            yield

    prober, _ = probed(program)
    act, learn = dict.fromkeys(call.function.number for call in prober.calls)
    assert not is_update(prober, act)
    assert is_update(prober, learn)


def asked(askers: int, rounds: int = 12) -> tuple[Timer, Prober]:
    """A learner in this thread, and so many threads that ask what it trains, five times a step."""
    timer, prober = Timer(jax, 1.0), Prober(jax)
    made, hearing = makers(prober)
    act = made.jit(lambda w, x: (w * x).sum())
    learn = made.jit(lambda w, v, x: (w + x, v * 2))
    w, v, x = jnp.zeros(SHAPE), jnp.ones(SHAPE), np.ones(SHAPE, np.float32)

    together = threading.Barrier(askers)

    def ask(_: int) -> None:
        together.wait()  # else one thread may ask for several
        for _ in range(5):
            act(w, x)

    with ThreadPoolExecutor(askers) as threads:
        for _ in range(rounds):
            w, v = learn(w, v, x)
            list(threads.map(ask, range(askers)))
    hearing.hear = None
    learner = threading.get_ident()
    asking = [each for each in dict.fromkeys(c.thread for c in prober.calls) if each != learner]
    for place, call in enumerate(prober.calls):
        if call.thread != learner:
            call.thread = 1 + asking.index(call.thread)
        timer.calls.append(Timed(call.thread, call.function, place * 1000, place * 1000 + 10))
    timer.begin_ns, timer.end_ns = 0, len(prober.calls) * 1000
    return timer, prober


def test_the_steps_are_those_of_the_thread_that_trains_what_another_one_asks() -> None:
    timer, prober = asked(1)
    told = step_of(timer, prober)
    assert told is not None
    span, probe = told
    assert (probe.asking, probe.thread) == (1, threading.get_ident())
    assert (span.steps, span.threads, len(probe.calls)) == (12, 1, 1)
    assert [leaf.role for leaf in probe.calls[0].leaves][:2] == ["state", "state"]


def test_a_loader_that_computes_asks_no_learner() -> None:
    _, prober = asked(1)
    for call in prober.calls:
        if call.thread == 1:  # its arguments come from elsewhere
            call.inputs = tuple(
                token._replace(number=10**6 + n) for n, token in enumerate(call.inputs)
            )
    assert asks_a_learner(prober) is None


def test_several_that_ask_share_a_model_and_are_the_callers() -> None:
    timer, prober = asked(3)
    assert asks_a_learner(prober) is None
    told = step_of(timer, prober)
    assert told is not None and told[0].threads == 4  # the learner is one more


def test_who_only_asks_is_no_actor() -> None:
    def program(made: Any) -> Any:
        answer = made.jit(lambda x: x + 1)
        for x in batches():
            answer(x)
            yield

    assert asks_a_learner(probed(program)[0]) is None
