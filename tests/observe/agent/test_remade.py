"""What a program makes anew in each step: state, and constants."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.observe.agent.heard import leaves, roles

Tree = dict[str, Any]
STEPS = 40


def fetched(
    tree: Any, names: tuple[str, ...] = ("b", "w"), put: Callable[[Any], Any] = jax.device_put
) -> Any:
    """The tree with these arrays changed by NumPy, and put on the device again."""
    return {**tree, **{name: put(np.clip(np.array(tree[name]), -2, 2)) for name in names}}


def state() -> Tree:
    return {"b": jnp.zeros(4), "w": jnp.ones((8, 4))}


def updated(p: Tree, x: Any) -> Tree:
    return {name: each + x.sum() for name, each in p.items()}


def batch(random: Any) -> Any:
    return jax.device_put(random.standard_normal((8,), np.float32))


@pytest.mark.parametrize("names", [("b", "w"), ("w",)])
@pytest.mark.parametrize("donate", [(), (0,)])
@pytest.mark.parametrize("put", [jax.device_put, np.asarray])
def test_a_state_is_known_by_the_order_of_its_arrays(
    names: tuple[str, ...], donate: tuple[int, ...], put: Callable[[Any], Any]
) -> None:
    def program(made: Any) -> Any:
        step = made.jit(lambda p, x: (x.max(), updated(p, x)), donate_argnums=donate)
        p, random = state(), np.random.default_rng(0)
        while True:
            _, p = step(p, batch(random))
            p = fetched(p, names, put)
            yield

    found = leaves(program, STEPS)
    assert {name: leaf.role for name, leaf in found.items()} == {
        "p['b']": "state",
        "p['w']": "state",
        "x": "new",
    }
    assert [found[name].source for name in ("p['b']", "p['w']")] == [(0, 1), (0, 2)]
    assert {name for name, leaf in found.items() if leaf.remade} == {f"p['{n}']" for n in names}


def test_a_state_is_of_the_call_that_returns_it() -> None:
    def program(made: Any) -> Any:
        gradients = made.jit(lambda p, x: jax.tree.map(lambda each: each * x.sum(), p))
        update = made.jit(lambda p, g: jax.tree.map(jnp.add, p, g))
        p, random = state(), np.random.default_rng(0)
        while True:
            p = fetched(update(p, gradients(p, batch(random))))
            yield

    found = leaves(program, STEPS)
    assert found["p['w']"].source == (1, 1) and found["p['w']"].remade
    assert not found["g['w']"].remade


def test_a_batch_beside_predictions_of_its_shape_is_none() -> None:
    def program(made: Any) -> Any:
        step = made.jit(lambda p, x, y: (p + x.sum(), x + 1, y + 1))
        p, random = jnp.zeros(3), np.random.default_rng(0)
        while True:
            p, *_ = step(p, batch(random), batch(random))
            yield

    assert roles(program, STEPS) == {"p": "state", "x": "new", "y": "new"}


def test_results_that_another_call_takes_are_no_state_of_this_one() -> None:
    def program(made: Any) -> Any:
        inner = made.jit(lambda p, x: updated(p, x))
        outer = made.jit(lambda q, p: q + p["w"].sum() + p["b"].sum())
        q, random = jnp.zeros(()), np.random.default_rng(0)
        while True:
            fresh = {
                "b": jax.device_put(random.random(4)),
                "w": jax.device_put(random.random((8, 4))),
            }
            q = outer(q, inner(fresh, batch(random)))
            yield

    found = roles(program, STEPS)
    assert (found["q"], found["x"]) == ("state", "new")
    assert not any(leaf.remade for leaf in leaves(program, STEPS).values())


@pytest.mark.parametrize("put", [jnp.array, jax.device_put])
@pytest.mark.parametrize("is_same", [True, False])
def test_a_large_array_that_is_made_anew_of_the_same_values_is_a_constant(
    put: Callable[[Any], Any], is_same: bool
) -> None:
    def program(made: Any) -> Any:
        step = made.jit(lambda p, table, x: p + table[0] * x.sum())
        p, random = jnp.zeros(4), np.random.default_rng(0)
        table = random.standard_normal((2**17, 4), np.float32)
        while True:
            table = table if is_same else table + 1
            p = step(p, put(table), batch(random))
            yield

    found = leaves(program, STEPS)
    assert {name: leaf.role for name, leaf in found.items()} == {
        "p": "state",
        "table": "constant" if is_same else "new",
        "x": "new",
    }
    assert {name for name, leaf in found.items() if leaf.remade} == (
        {"table"} if is_same else set()
    )


def test_a_large_array_that_stays_is_a_constant_that_nobody_makes() -> None:
    def program(made: Any) -> Any:
        step = made.jit(lambda p, table, x: p + table[0] * x.sum())
        p, table, random = jnp.zeros(4), jnp.ones((2**17, 4)), np.random.default_rng(0)
        while True:
            p = step(p, table, batch(random))
            yield

    found = leaves(program, STEPS)["table"]
    assert (found.role, found.remade) == ("constant", False)


@pytest.mark.parametrize("put", [jnp.array, np.asarray])
@pytest.mark.parametrize("donate", [(), (0,)])
def test_a_large_array_of_which_little_is_changed_is_a_state_if_it_is_given_away(
    put: Callable[[Any], Any], donate: tuple[int, ...]
) -> None:
    def program(made: Any) -> Any:
        step = made.jit(
            lambda p, x: {"b": p["b"] + x.sum(), "table": p["table"]}, donate_argnums=donate
        )
        p, random = {"b": jnp.zeros(4), "table": jnp.ones((2**17, 4))}, np.random.default_rng(0)
        while True:
            p = step(p, batch(random))
            table = np.array(p["table"])
            table[7, 1] += 1
            p["table"] = put(table)
            yield

    table = leaves(program, STEPS)["p['table']"]
    assert (table.role, table.source) == (("state", (0, 1)) if donate else ("constant", None))
