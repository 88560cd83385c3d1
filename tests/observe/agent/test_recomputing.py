"""Programs that jax traces as if `jax.checkpoint` were not there, beside the real ones."""

import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from perfdoctor.injection.calls import Function
from perfdoctor.observe.agent.recomputing import CHECKPOINTED, checkpointed, inlined, kept
from perfdoctor.observe.agent.rewriting import equations_in

WEIGHTS = jnp.linspace(-1.0, 1.0, 3 * 4 * 4).reshape(3, 4, 4)


def cell(state: Any, weights: Any) -> Any:
    return jax.checkpoint(lambda x: jnp.tanh(x @ weights))(state), None


def loss(weights: Any, start: Any) -> Any:
    """A checkpointed loop with a checkpointed body, and a jitted function that has one too."""
    last, _ = jax.lax.scan(jax.checkpoint(cell), start, weights)
    return jax.jit(jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)).sum()))(last)


def program(jitted: Any, *arguments: Any) -> Any:
    return jitted.trace(*arguments).jaxpr


def recomputing(closed: Any) -> int:
    return sum(each.primitive.name == CHECKPOINTED for each in equations_in(closed))


def test_nothing_is_computed_again_and_later_traces_are_as_before() -> None:
    start = jnp.ones((2, 4))
    jitted = jax.jit(jax.grad(loss))
    real = program(jitted, WEIGHTS, start)
    operation = checkpointed(real)
    without = kept(jax, operation, Function(jitted), (WEIGHTS, start), {})
    assert recomputing(without) == 0
    assert recomputing(program(jitted, WEIGHTS, start)) == recomputing(real) > 0
    # of functions that were traced without it, and are traced anew inside another one
    assert recomputing(program(jax.jit(jax.value_and_grad(loss)), WEIGHTS, start)) > 0
    expected, found = (
        jax.jit(jax.extend.core.jaxpr_as_fun(each))(WEIGHTS, start) for each in (real, without)
    )
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-6)


def test_other_threads_trace_what_they_have_written() -> None:
    start, found = jnp.ones((2, 4)), list[int]()
    jitted = jax.jit(jax.grad(loss))
    operation = checkpointed(program(jitted, WEIGHTS, start))

    def trace() -> None:
        found.append(recomputing(program(jax.jit(jax.value_and_grad(loss)), WEIGHTS, start)))

    with inlined(operation):
        thread = threading.Thread(target=trace)
        thread.start()
        thread.join()
    assert found[0] > 0


def test_what_is_not_differentiated_is_computed_once() -> None:
    assert checkpointed(program(jax.jit(loss), WEIGHTS, jnp.ones((2, 4)))) is None
