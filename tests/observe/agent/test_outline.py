"""What a call was given, without its arrays."""

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from perfdoctor.observe.agent.outline import Arguments, Outline, arguments_of, outlined


def step(params: Any, *rest: Any, scale: float = 2.0, **more: Any) -> Arguments | None:
    """Tells what it was called with."""
    del rest, scale, more
    return arguments_of(jax, sys._getframe()) if params is not None else None


def test_of_arguments_that_are_gone_nothing_is_told() -> None:
    assert step(jnp.ones(3)) is None


def test_arrays_of_a_device_are_outlined_and_those_of_the_host_copied() -> None:
    host = np.arange(3)
    tree = outlined(jax, {"a": jnp.ones((2, 3)), "n": jnp.arange(5), "h": host, "s": "text"})
    assert tree["a"] == Outline((2, 3), jnp.dtype("float32"), weak_type=False)
    assert (tree["n"].low, tree["n"].high, tree["s"]) == (0, 5, "text")
    host[0] = 7
    assert tree["h"][0] == 0


def test_a_key_is_outlined_with_its_generator() -> None:
    found = outlined(jax, jax.random.key(0))
    assert found.key == "fry" or "fry" in found.key
    assert found.data.shape == (2,)


def test_what_is_traced_is_not_kept() -> None:
    def trace(x: Any) -> Any:
        with pytest.raises(TypeError, match="traced already"):
            outlined(jax, x)
        return x

    jax.make_jaxpr(trace)(1.0)
