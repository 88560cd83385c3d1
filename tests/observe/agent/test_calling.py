"""What a jitted call takes of the host for its trees."""

import sys
import time
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from perfdoctor.observe.agent.calling import Calling, calling, jit_for, returns_late
from perfdoctor.observe.agent.outline import outlined

TAKES_S = 0.005
"""What it takes to take a `Layer` apart, at least."""


@jax.tree_util.register_pytree_node_class
class Layer:
    """Is taken apart in Python, as equinox's modules are."""

    def __init__(self, *weights: Any) -> None:
        self.weights = weights

    def tree_flatten(self) -> tuple[tuple[Any, ...], None]:
        time.sleep(TAKES_S)
        return self.weights, None

    @classmethod
    def tree_unflatten(cls, _: None, weights: tuple[Any, ...]) -> "Layer":
        return cls(*weights)


def test_trees_that_python_takes_apart_take_as_long_in_each_call() -> None:
    weights = jnp.ones((4, 4)), np.ones(3)
    model = outlined(jax, {"layer": Layer(*weights), "name": "encoder", "rate": 0.1})
    found = calling(jax, ((), {"model": model}, []))
    assert found.trees_ms >= TAKES_S * 1e3 / 2 and not found.waits


def test_what_can_not_be_called_takes_nothing_that_is_known() -> None:
    @jax.tree_util.register_pytree_node_class
    class Broken(Layer):
        def tree_flatten(self) -> tuple[tuple[Any, ...], None]:
            raise ValueError("it can't be taken apart")

    assert calling(jax, [Broken(1.0)]) == Calling(0.0, waits=False)


def test_modules_of_equinox_are_jitted_by_equinox(monkeypatch: pytest.MonkeyPatch) -> None:
    equinox: Any = ModuleType("equinox")
    equinox.Module, equinox.filter_jit = Layer, object()
    monkeypatch.setitem(sys.modules, "equinox", equinox)
    assert jit_for(jax, [{"model": Layer(1.0)}]) is equinox.filter_jit
    assert jit_for(jax, [{"model": 1.0}]) is jax.jit
    monkeypatch.delitem(sys.modules, "equinox")
    assert jit_for(jax, [{"model": Layer(1.0)}]) is jax.jit


def test_it_is_seen_whether_a_call_waits_for_its_results() -> None:
    def waiting(function: Any) -> Any:
        jitted = jax.jit(function)
        return lambda *arguments: jax.block_until_ready(jitted(*arguments))

    assert returns_late(jax, waiting) and not returns_late(jax, jax.jit)
