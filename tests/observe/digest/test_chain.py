"""How many products wait for each other, in programs that the installed jax lowers."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from perfdoctor.observe.digest import chain as module
from perfdoctor.observe.digest.program import parse

W = jnp.zeros((5, 5))
X = jnp.zeros((8, 5))


def chain(function: Callable[..., Any], *arguments: Any) -> int | None:
    """Of a function that jax lowers for these arguments."""
    text = jax.jit(function).lower(*arguments).as_text(debug_info=True)
    return parse(text, "step").chain


def deep(weights: list[jax.Array], hidden: jax.Array) -> jax.Array:
    """Each layer takes what the one before returns, and its own input once more."""
    for each in weights:
        hidden = hidden + jnp.tanh(hidden) @ each
    return hidden


def experts(weights: list[jax.Array], inputs: jax.Array) -> jax.Array:
    """All take the same input."""
    return sum((jnp.tanh(inputs @ each) @ each for each in weights), jnp.zeros(()))


def test_layers_behind_each_other_are_a_chain() -> None:
    assert chain(deep, [W] * 7, X) == 7


def test_experts_beside_each_other_are_not() -> None:
    assert chain(experts, [W] * 7, X) == 2


@pytest.mark.parametrize("wrapped", [lambda f: f, jax.checkpoint, jax.jit])
def test_gradients_and_what_they_compute_again_lengthen_it_not(
    wrapped: Callable[[Any], Any],
) -> None:
    def step(weights: list[jax.Array], inputs: jax.Array) -> Any:
        loss = jax.value_and_grad(lambda ws: jnp.sum(wrapped(deep)(ws, inputs) ** 2))
        value, slopes = loss(weights)
        return value, jax.tree.map(lambda w, g: w - g, weights, slopes)

    assert chain(step, [W] * 4, X) == 4


def test_derivatives_along_with_a_network_lengthen_it_by_one_at_most() -> None:
    def slope(weights: list[jax.Array], inputs: jax.Array) -> jax.Array:
        return jax.jvp(lambda x: deep(weights, x), (inputs,), (inputs,))[1]

    assert chain(slope, [W] * 4, X) in (4, 5)


def test_each_trip_of_a_loop_waits_for_the_one_before() -> None:
    def scanned(stack: jax.Array, inputs: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda h, w: (jnp.tanh(h) @ w, None), inputs, stack)[0]

    assert chain(scanned, jnp.zeros((6, 5, 5)), X) == 6


def test_of_branches_the_longest_counts() -> None:
    def either(inputs: jax.Array) -> jax.Array:
        return jax.lax.cond(inputs[0, 0] > 0, lambda h: h @ W, lambda h: (h @ W) @ W, inputs)

    assert chain(either, X) == 2


def test_a_program_of_too_many_operations_tells_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MANY", 3)
    assert chain(deep, [W] * 7, X) is None
