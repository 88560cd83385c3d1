"""The elements that programs compute, as the installed jax lowers them."""

import inspect
import os
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from perfdoctor.observe.digest.program import parse
from perfdoctor.schema.program import Program

WIDE = """
import jax, jax.numpy as jnp, numpy as np

SCALES = np.linspace(0, 1, 6)

def wide(x):
    return x * SCALES

def step(x):
    return wide(x).sum() + jnp.tanh(x).sum()

print(jax.jit(step).lower(jnp.zeros((8, 6), jnp.float32)).as_text(debug_info=True))
"""
TRIPS, SIZE = 50, 16
OLD_JAX = jax.__version__.startswith("0.8.")
"""It tells of what a loop computes again the line that begins the loop."""


def program(function: Any, *arguments: Any) -> Program:
    """What the digest makes of a function that jax lowers for these arguments."""
    return parse(jax.jit(function).lower(*arguments).as_text(debug_info=True), "step")


def test_lines_that_compute_in_double_precision_are_found() -> None:
    # in a process of its own: it sets a global setting of jax
    done = subprocess.run(
        [sys.executable, "-c", WIDE],
        env={**os.environ, "JAX_ENABLE_X64": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    places = parse(done.stdout, "step").wide_places
    assert places[0].function == "wide"
    assert places[0].line == WIDE.splitlines().index("    return x * SCALES") + 1
    assert places[0].share > 0.4
    assert sum(place.share for place in places) == pytest.approx(1.0)


def cell(state: Any, weights: Any) -> Any:
    return jnp.tanh(jnp.sin(jnp.cos(state * weights))), None


def loss(wrapped: Any, weights: Any, start: Any) -> Any:
    return jax.lax.scan(wrapped, start, weights)[0].sum()


def gradient(wrapped: Any) -> Program:
    start, weights = jnp.ones(SIZE), jnp.ones((TRIPS, SIZE))
    return program(lambda w, x: jax.grad(loss, argnums=1)(wrapped, w, x), weights, start)


def test_what_a_loop_computes_again_counts_once_for_each_trip() -> None:
    found = gradient(jax.checkpoint(cell))
    # cosine, sine and tangent forward, the same again, and a product or two for each backward
    assert 0.15 < found.recomputed_share < 0.5
    (place,) = found.recomputed_places
    told = loss if OLD_JAX else cell
    assert place.function == told.__name__ and place.file == __file__
    assert place.line == inspect.getsourcelines(told)[1] + 1
    assert place.share > 0.9


def test_without_checkpoint_nothing_is_computed_again() -> None:
    found = gradient(cell)
    assert (found.recomputed_share, found.recomputed_places, found.wide_places) == (0.0, (), ())
