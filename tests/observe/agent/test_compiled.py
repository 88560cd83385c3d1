"""What XLA has compiled for the program is found again, and nothing is compiled for it."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from perfdoctor.observe.agent.compilation import COMPILED
from perfdoctor.observe.agent.compiled import compiled_before, serialized

X = jnp.linspace(0.0, 1.0, 8)


@pytest.fixture
def compilations() -> Iterator[list[str]]:
    """Events of compilations, as they come."""
    found: list[str] = []

    def hear(event: str, seconds: float, **_: Any) -> None:
        if event.endswith(COMPILED):
            found.append(event)

    jax.monitoring.register_event_duration_secs_listener(hear)
    yield found
    jax.monitoring.unregister_event_duration_listener(hear)


def stepping() -> Any:
    """Another function each time, which jax does not know."""
    return jax.jit(lambda x: jnp.tanh(x) * 2.0)


def test_nothing_is_compiled_for_it(compilations: list[str]) -> None:
    step = stepping()
    assert compiled_before(jax, step.trace(X)) is None
    step(X)
    before = len(compilations)
    found = compiled_before(jax, step.trace(X))
    assert found is not None and len(compilations) == before >= 1
    np.testing.assert_allclose(found(X), step(X))


def test_what_was_compiled_for_other_arguments_is_none() -> None:
    step = stepping()
    step(X)
    assert compiled_before(jax, step.trace(X[:4])) is None


def test_it_can_be_handed_over() -> None:
    step = stepping()
    step(X)
    assert serialized(compiled_before(jax, step.trace(X)))


def test_what_calls_back_to_python_can_not() -> None:
    shape = jax.ShapeDtypeStruct(X.shape, X.dtype)
    step: Any = jax.jit(lambda x: jax.pure_callback(np.sin, shape, x))
    step(X)
    assert serialized(compiled_before(jax, step.trace(X))) is None


def test_a_version_that_keeps_it_elsewhere_is_no_error() -> None:
    other: Any = SimpleNamespace(lower=SimpleNamespace)
    assert compiled_before(jax, other) is None
