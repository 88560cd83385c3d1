"""What `jax.jit` returns looks and acts the same with our wrapper around it."""

import functools
import inspect
from types import SimpleNamespace
from typing import Any

import cloudpickle
import equinox as eqx
import jax
import jax.numpy as jnp
import optax
import pytest

from perfdoctor.injection.calls import Function, Hearing, wrap_makers

Heard = list[tuple[str, Any]]


def listening() -> tuple[Any, Hearing, Heard]:
    """jax with its makers wrapped, and what is heard of its calls."""
    made = SimpleNamespace(jit=jax.jit, pmap=jax.pmap)
    hearing, heard = Hearing(), Heard()

    def hear(function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        heard.append((function.name, args))
        return function.jitted(*args, **kwargs)

    hearing.hear = hear
    wrap_makers(made, hearing)
    return made, hearing, heard


def double(x: Any, *, times: int = 2) -> Any:
    """Doubles."""
    return times * x


def test_calls_are_heard_and_answered() -> None:
    made, _, heard = listening()
    assert made.jit(double)(3.0) == 6.0
    assert heard == [("double", (3.0,))]


def test_without_a_listener_nothing_is_heard() -> None:
    made, hearing, heard = listening()
    hearing.hear = None
    assert made.jit(double)(3.0) == 6.0
    assert heard == []


def test_as_a_decorator_with_options() -> None:
    made, _, _ = listening()

    @functools.partial(made.jit, static_argnames="times")
    def scaled(x: Any, *, times: int) -> Any:
        return x * jnp.ones(times)

    assert scaled(2.0, times=3).shape == (3,)


@pytest.mark.skipif(jax.__version__.startswith("0.8."), reason="jax 0.8 needs the function at once")
def test_as_a_decorator_that_is_made_first() -> None:
    made, _, _ = listening()
    assert made.jit(static_argnums=0)(lambda n: jnp.ones(n))(4).shape == (4,)


def test_it_looks_like_the_jitted_function() -> None:
    made, _, _ = listening()
    wrapped, plain = made.jit(double), jax.jit(double)
    assert (wrapped.__name__, wrapped.__doc__, wrapped.__module__) == (
        plain.__name__,
        plain.__doc__,
        plain.__module__,
    )
    assert inspect.signature(wrapped) == inspect.signature(plain)
    assert wrapped.__wrapped__ is double
    assert isinstance(wrapped, jax.stages.Wrapped)
    assert {name for name in dir(plain) if not name.startswith("__")} <= set(dir(wrapped))
    assert inspect.signature(made.jit) == inspect.signature(jax.jit)


def test_ahead_of_time() -> None:
    made, _, _ = listening()
    wrapped = made.jit(double)
    assert wrapped.lower(1.0).compile()(2.0) == 4.0
    assert wrapped.trace(1.0).jaxpr.out_avals[0].shape == ()
    assert wrapped.eval_shape(jnp.ones(3)).shape == (3,)
    wrapped.clear_cache()


@pytest.mark.parametrize("transform", [jax.grad, jax.value_and_grad, jax.vmap, jax.make_jaxpr])
def test_transformations_of_it(transform: Any) -> None:
    made, _, _ = listening()
    square = lambda x: x * x  # noqa: E731
    argument = jnp.ones(2) if transform is jax.vmap else 3.0
    found, expected = (transform(jit(square))(argument) for jit in (made.jit, jax.jit))
    if transform is jax.make_jaxpr:
        assert str(found) == str(expected)
    else:
        assert jnp.array_equal(jnp.asarray(found), jnp.asarray(expected))


def test_inside_of_another_one() -> None:
    made, _, _ = listening()
    inner = made.jit(lambda x: x + 1)
    outer = made.jit(lambda x: jax.lax.scan(lambda c, _: (inner(c), None), x, length=3)[0])
    assert outer(1.0) == 4.0
    assert made.jit(inner)(1.0) == 2.0


def test_a_method() -> None:
    made, _, heard = listening()

    class Model:
        factor = 3.0

        @functools.partial(made.jit, static_argnums=0)
        def scaled(self, x: Any) -> Any:
            return self.factor * x

    assert Model().scaled(2.0) == 6.0
    assert heard[0][0] == "scaled"


def test_errors_are_those_of_the_function() -> None:
    made, _, _ = listening()
    with pytest.raises(ZeroDivisionError):
        made.jit(lambda x: x / (1 // 0))(1.0)


def test_cloudpickle() -> None:
    made, _, heard = listening()
    dumped = cloudpickle.dumps(made.jit(lambda x: x + 1))
    loaded = cloudpickle.loads(dumped)
    assert loaded(1.0) == 2.0
    assert heard == []  # where it is loaded, nobody listens


def test_donation_and_deleted_arrays() -> None:
    made, _, _ = listening()
    step = made.jit(lambda x: x + 1, donate_argnums=0)
    before = jnp.ones(1000)
    after = step(before)
    assert before.is_deleted() and not after.is_deleted()


def test_pmap() -> None:
    made, _, heard = listening()
    assert made.pmap(lambda x: x + 1)(jnp.ones((1, 2))).shape == (1, 2)
    assert len(heard) == 1


def test_equinox_and_optax(monkeypatch: pytest.MonkeyPatch) -> None:
    made, _, heard = listening()
    monkeypatch.setattr(jax, "jit", made.jit)
    model = eqx.nn.Linear(3, 1, key=jax.random.key(0))
    optimiser = optax.sgd(0.1)
    state = optimiser.init(eqx.filter(model, eqx.is_array))

    def step(model: Any, state: Any, x: Any) -> Any:
        grads = eqx.filter_grad(lambda m: m(x).sum())(model)  # type: ignore[no-untyped-call]
        updates, state = optimiser.update(grads, state)
        return eqx.apply_updates(model, updates), state

    jitted: Any = eqx.filter_jit(step)
    model, state = jitted(model, state, jnp.ones(3))
    assert jnp.isfinite(model.weight).all()
    assert any(name.startswith("step") for name, _ in heard)


def test_functions_of_one_origin() -> None:
    made, _, _ = listening()
    functions: list[Function] = []
    hearing = Hearing()
    wrap_makers(made := SimpleNamespace(jit=jax.jit, pmap=jax.pmap), hearing)

    def hear(function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        functions.append(function)
        return function.jitted(*args, **kwargs)

    hearing.hear = hear
    for _ in range(2):
        made.jit(lambda x: x + 1)(1.0)
    made.jit(double)(1.0)
    first, second, other = functions
    assert first.number != second.number
    assert first.origin == second.origin != other.origin
