"""What the arguments of a call look like."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from perfdoctor.injection.calls import Function
from perfdoctor.observe.agent.form import dynamic, form_of, kind_of
from tests.observe.agent.heard import leaves
from tests.observe.agent.test_calls import OLD_JAX


@pytest.mark.parametrize(
    ("options", "args", "kwargs", "left"),
    [
        ({}, (1, 2, 3), {}, ((1, 2, 3), {})),
        ({"static_argnums": 1}, (1, 2, 3), {}, ((1, 3), {})),
        ({"static_argnums": -1}, (1, 2, 3), {}, ((1, 2), {})),
        ({"static_argnums": (0, 2)}, (1, 2, 3), {}, ((2,), {})),
        ({"static_argnames": "b"}, (1, 2, 3), {}, ((1, 3), {})),
        ({"static_argnames": "b"}, (1,), {"b": 2, "c": 3}, ((1,), {"c": 3})),
        ({"static_argnames": ("b", "c")}, (1, 2), {"c": 3}, ((1,), {})),
        ({"static_argnums": 1}, (1,), {"b": 2, "c": 3}, ((1,), {"c": 3})),
    ],
)
def test_static_arguments_are_left_out(
    options: dict[str, Any], args: tuple[int, ...], kwargs: dict[str, int], left: Any
) -> None:
    function = Function(jax.jit(lambda a, b, c: a + b + c, **options))
    assert dynamic(function, args, kwargs) == left


def test_names_are_those_of_the_parameters_with_the_path_in_their_trees() -> None:
    function = Function(jax.jit(lambda params, n, *more, rate: 0, static_argnums=1))
    args = ({"w": [1.0, 2.0]}, 7, 3.0)
    form = form_of(jax, function, args, {"rate": 0.1})
    assert form.names == ("params['w'][0]", "params['w'][1]", "args[2]", "rate")


@pytest.mark.parametrize(
    ("options", "donated"),
    [
        ({}, (False, False, False)),
        ({"donate_argnums": 0}, (True, True, False)),
        ({"donate_argnames": "x"}, (False, False, True)),
        ({"donate_argnums": 2, "static_argnums": 1}, (False, False, True)),
        ({"donate_argnums": (0, 2), "static_argnames": "n"}, (True, True, True)),
    ],
)
@pytest.mark.parametrize("by_name", [False, True])
def test_donated_arguments(options: dict[str, Any], donated: Any, by_name: bool) -> None:
    if OLD_JAX and not by_name and any(name.startswith("static") for name in options):
        pytest.skip("jax 0.8 counts what is donated without the static arguments")
    function = Function(jax.jit(lambda params, n, x: 0, **options))
    params, x = {"a": jnp.ones(2), "b": jnp.ones(2)}, jnp.ones(3)
    args, kwargs = ((params,), {"n": 1, "x": x}) if by_name else ((params, 1, x), {})
    form = form_of(jax, function, args, kwargs)
    found = dict(zip(form.names, form.donated, strict=True))
    found.pop("n", None)
    assert tuple(found.values()) == donated


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1, "scalar"),
        (True, "scalar"),
        (1.5, "scalar"),
        (1j, "scalar"),
        (np.float64(1.5), "host"),
        (np.float32(1.5), "host"),
        (np.ones(3), "host"),
        (jnp.ones(3), "device"),
        (jax.random.key(0), "key"),
        (jax.random.PRNGKey(0), "device"),
    ],
    ids=str,
)
def test_kinds(value: Any, kind: str) -> None:
    assert kind_of(jax, value) == kind


def test_the_form_of_an_argument() -> None:
    def program(made: Any) -> Any:
        step = made.jit(lambda p, x, rate: p + rate * x.mean())
        p = jnp.zeros(3, jnp.bfloat16)
        while True:
            p = step(p, np.ones((4, 2), np.float32), 0.5).astype(jnp.bfloat16)
            yield

    found = leaves(program)
    assert (found["x"].shape, found["x"].dtype, found["x"].bytes) == ((4, 2), "float32", 32)
    assert (found["p"].dtype, found["p"].bytes, found["p"].sharding) == ("bfloat16", 6, "")
    assert (found["rate"].kind, found["rate"].shape) == ("scalar", ())
