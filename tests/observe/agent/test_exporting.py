"""Programs of a jitted function that are changed for a trial, traced by jax itself."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from perfdoctor.injection.calls import Function
from perfdoctor.observe.agent.exporting import (
    at_once,
    lengthened,
    loops,
    narrowed,
    short_axes,
    together,
    x64_off,
)


def function_of(jitted: Any) -> Function:
    return Function(jitted)


def step(state: Any, batch: Any) -> Any:
    return state + (batch @ state).sum()


def types_in(closed: Any) -> set[str]:
    return {str(each.aval.dtype) for equation in closed.eqns for each in equation.outvars}


def test_narrowed_is_the_program_without_x64(wide: None) -> None:
    state, batch = jnp.ones(4), np.ones((8, 4))
    assert str(state.dtype) == "float64"
    with x64_off(jax):
        closed = narrowed(jax, function_of(jax.jit(step)), (state, batch), {})
    assert types_in(closed) == {"float32"}
    assert closed.in_avals[1].shape == (8, 4)


def test_random_keys_and_numbers_stay_what_they_are() -> None:
    def draw(key: Any, scale: Any) -> Any:
        return scale * jax.random.normal(key, (3,))

    closed = narrowed(jax, function_of(jax.jit(draw)), (jax.random.key(0), 2.0), {})
    assert jax.dtypes.issubdtype(closed.in_avals[0].dtype, jax.dtypes.prng_key)


@pytest.mark.parametrize(
    ("shapes", "axes"),
    [
        ([(8, 4), (8,)], [8]),
        ([(4, 8), (8, 4)], [4, 8]),
        ([(64, 4), (64,)], []),  # no small batch
        ([(8, 3), (5,)], []),
        ([(128, 8, 16), (128, 8), (2,)], [8]),  # a seed has no place for each example
    ],
)
def test_a_short_axis_is_one_that_nearly_all_new_data_share(
    shapes: list[tuple[int, ...]], axes: list[int]
) -> None:
    assert short_axes([(shape, 4 * math.prod(shape)) for shape in shapes]) == axes


def test_lengthened_takes_more_of_what_is_new() -> None:
    state, batch = jnp.ones(4), np.ones((8, 4), np.float32)
    made = lengthened(jax, function_of(jax.jit(step)), (state, batch), {}, {id(batch)}, 8, 32)
    assert [each.shape for each in made.in_avals] == [(4,), (32, 4)]
    assert [each.shape for each in made.out_avals] == [(4,)]


def test_new_data_without_that_axis_stay_as_they_are() -> None:
    def scaled(state: Any, batch: Any, scale: Any) -> Any:
        return state + (batch * scale[0]).sum(0)

    state, batch, scale = jnp.ones(4), np.ones((8, 4), np.float32), np.ones(2, np.float32)
    function, chosen = function_of(jax.jit(scaled)), {id(batch), id(scale)}
    made = lengthened(jax, function, (state, batch, scale), {}, chosen, 8, 32)
    assert [each.shape for each in made.in_avals] == [(4,), (32, 4), (2,)]


@pytest.mark.parametrize("is_fixed", [False, True])
def test_of_two_axes_alike_the_batch_is_the_one_that_no_loop_goes_over(is_fixed: bool) -> None:
    """A step of one microbatch of one example. `is_fixed`: whether there can be no more of them."""

    def accumulated(state: Any, batch: Any) -> Any:
        rates = (jnp.ones(1 if is_fixed else len(batch)), batch)
        return jax.lax.scan(lambda p, each: (p + each[0] * each[1].sum(0), None), state, rates)[0]

    state, batch = jnp.ones(4), np.ones((1, 1, 4), np.float32)
    function = function_of(jax.jit(accumulated))
    made = lengthened(jax, function, (state, batch), {}, {id(batch)}, 1, 32)
    assert [each.shape for each in made.in_avals] == [(4,), (1, 32, 4)]
    assert loops(made, 1) and not loops(made, 32)


def test_several_steps_at_once_return_what_one_does() -> None:
    weights, key = jnp.arange(4.0), jax.random.key(0)
    closed = jax.make_jaxpr(lambda w, k, x: (w * x, k))(weights, key, 3.0)
    made = at_once(jax, closed, [0, 1], 5)
    results = jax.core.eval_jaxpr(made.jaxpr, made.consts, weights, key, 3.0)
    assert jnp.allclose(results[0], weights * 3) and results[1].shape == ()
    assert "5,4" in str(made)


def test_together_answers_each_request_as_alone() -> None:
    weights, request = jnp.arange(12.0).reshape(4, 3), jnp.ones(4)
    closed = jax.make_jaxpr(lambda w, x: x @ w)(weights, request)
    made = together(jax, closed, [1], 5)
    requests = jnp.arange(20.0).reshape(5, 4)
    [answers] = jax.core.eval_jaxpr(made.jaxpr, made.consts, weights, requests)
    assert jnp.allclose(answers, requests @ weights)


def test_x64_is_off_only_within(wide: None) -> None:
    with x64_off(jax):
        assert str(jnp.ones(1).dtype) == "float32"
    assert str(jnp.ones(1).dtype) == "float64"
