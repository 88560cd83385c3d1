"""Callbacks and precision are taken out of traced programs, however deep they are."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend.core import jaxpr_as_fun

from perfdoctor.observe.agent.exporting import exported
from perfdoctor.observe.agent.rewriting import (
    CALLBACKS,
    PRODUCTS,
    holds,
    is_exact,
    is_wide,
    with_default_precision,
    without_callbacks,
)

Body = Callable[[Any], Any]
CALLED: list[float] = []


def call_back(x: Any) -> Any:
    """Calls back in three ways; the first returns five times x."""

    def times(value: Any) -> Any:
        CALLED.append(float(np.sum(value)))
        return np.asarray(5 * value, value.dtype)

    def note(value: Any) -> None:
        CALLED.append(float(np.sum(value)))

    jax.debug.print("x is {}", x)
    jax.debug.callback(note, x)
    y = jax.pure_callback(
        times, jax.ShapeDtypeStruct(x.shape, x.dtype), x, vmap_method="sequential"
    )
    jax.experimental.io_callback(note, None, x, ordered=True)
    return x + y


def in_a_scan(body: Body) -> Body:
    return lambda x: lax.scan(lambda c, _: (body(c), c), x, length=2)[0]


def in_a_loop(body: Body) -> Body:
    return lambda x: lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, body(s[1])), (0, x))[1]


def in_a_branch(body: Body) -> Body:
    return lambda x: lax.cond(x.sum() > -1, body, lambda x: x, x)


def in_a_function(body: Body) -> Body:
    return lambda x: jax.jit(body)(x) * 1


def in_a_checkpoint(body: Body) -> Body:
    return lambda x: jax.checkpoint(body)(x) * 1


def with_its_own_derivative(body: Body) -> Body:
    own = jax.custom_jvp(body)
    own.defjvp(lambda primals, tangents: (own(*primals), tangents[0]))
    return lambda x: own(x) * 1


def with_its_own_gradient(body: Body) -> Body:
    own = jax.custom_vjp(body)
    own.defvjp(lambda x: (body(x), None), lambda _, g: (g,))
    return lambda x: own(x) * 1


AROUND = (
    in_a_scan,
    in_a_loop,
    in_a_branch,
    in_a_function,
    in_a_checkpoint,
    with_its_own_derivative,
    with_its_own_gradient,
)
ORDERED_NOWHERE = (in_a_checkpoint, with_its_own_derivative, with_its_own_gradient)
"""jax has no ordered callbacks in them."""


def unordered(x: Any) -> Any:
    """As `call_back`, without the ordered one."""
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return x + jax.pure_callback(lambda value: 5 * value, shape, x, vmap_method="sequential")


def traced(function: Body, x: Any = None) -> Any:
    return jax.jit(function).trace(jnp.ones(3) if x is None else x).jaxpr


def run(closed: Any, x: Any) -> Any:
    CALLED.clear()
    (found,) = jax.jit(jaxpr_as_fun(closed))(x)
    jax.effects_barrier()
    return found


def test_without_callbacks_none_is_made_and_zero_takes_their_place() -> None:
    closed = without_callbacks(traced(call_back))
    assert jnp.array_equal(run(closed, jnp.full(3, 2.0)), jnp.full(3, 2.0))
    assert CALLED == []
    assert closed.jaxpr.effects == set()


@pytest.mark.parametrize("around", AROUND)
def test_however_deep_they_are(around: Callable[[Body], Body]) -> None:
    body = unordered if around in ORDERED_NOWHERE else call_back
    before = traced(around(body))
    assert holds(before, CALLBACKS)
    after = without_callbacks(before)
    assert not holds(after, CALLBACKS)
    assert after.jaxpr.effects == set()
    assert jnp.array_equal(run(after, jnp.ones(3)), jnp.ones(3))
    assert CALLED == []
    assert exported(jax, after, [None])


@pytest.mark.parametrize("outer", AROUND[:4])
@pytest.mark.parametrize("inner", AROUND[:4])
def test_one_in_the_other(outer: Callable[[Body], Body], inner: Callable[[Body], Body]) -> None:
    after = without_callbacks(traced(outer(inner(unordered))))
    assert not holds(after, CALLBACKS)
    assert jnp.array_equal(run(after, jnp.ones(3)), jnp.ones(3))


def test_gradients_of_what_calls_back() -> None:
    def noted(x: Any) -> Any:
        jax.debug.print("{}", x.sum())
        return (x**2).sum()

    after = without_callbacks(traced(jax.grad(noted)))
    assert not holds(after, CALLBACKS)
    assert jnp.array_equal(run(after, jnp.ones(3)), jnp.full(3, 2.0))
    assert exported(jax, after, [None])


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.int32, jnp.bool_, jnp.complex64])
def test_zeros_of_any_type(dtype: Any) -> None:
    def ask(x: Any) -> Any:
        return jax.pure_callback(
            lambda: np.ones((2, 2), dtype), jax.ShapeDtypeStruct((2, 2), dtype)
        )

    found = run(without_callbacks(traced(ask)), jnp.ones(3))
    assert found.dtype == dtype
    assert not found.any()


def test_a_program_without_callbacks_stays_as_it_is() -> None:
    before = traced(in_a_scan(lambda x: jnp.sin(x)))
    assert str(without_callbacks(before)) == str(before)


def product(x: Any) -> Any:
    """In high precision."""
    return jnp.dot(jnp.ones((3, 3)), x, precision="highest")


def convolution(x: Any) -> Any:
    """The same of the other kind."""
    return jnp.convolve(x, jnp.ones(3), mode="same", precision="high")


@pytest.mark.parametrize("body", [product, convolution])
@pytest.mark.parametrize("around", [*AROUND, lambda body: body])
def test_precision_is_the_usual_one_afterwards(body: Body, around: Callable[[Body], Body]) -> None:
    before = traced(around(body))
    assert is_exact(before)
    after = with_default_precision(before)
    assert not is_exact(after)
    assert holds(after, PRODUCTS)
    assert exported(jax, after, [None])


def test_products_of_the_usual_precision_are_not_exact() -> None:
    assert not is_exact(traced(lambda x: jnp.dot(x, x)))
    assert not is_exact(traced(lambda x: jnp.dot(x, x, precision="default")))


def test_a_context_asks_for_precision_too() -> None:
    with jax.default_matmul_precision("highest"):
        assert is_exact(traced(lambda x: jnp.dot(x, x)))


def test_double_precision_is_seen_wherever_it_is() -> None:
    with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():

        def inside(x: Any) -> Any:
            return x.astype(jnp.float64).sum().astype(jnp.float32)

        single = jnp.ones(3, jnp.float32)
        assert is_wide(traced(inside, single))
        assert is_wide(traced(in_a_scan(lambda x: x + inside(x)), single))
        assert is_wide(traced(lambda x: x, jnp.ones(3)))
        assert not is_wide(traced(lambda x: x + 1, single))
