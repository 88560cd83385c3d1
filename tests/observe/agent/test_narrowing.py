"""Programs that were traced in 32 bits while the script computes in 64."""

from typing import Any

import jax
import jax.extend.core
import jax.numpy as jnp
import numpy as np

from perfdoctor.observe.agent.exporting import x64_off
from perfdoctor.observe.agent.narrowing import in_32_bits, narrow_value

WEIGHTS = np.linspace(0.0, 1.0, 8)


def inner(p: Any) -> Any:
    return p * WEIGHTS


def step(p: Any, key: Any) -> Any:
    """Holds the constant in a function of its own, in a loop, in a branch and as an operand."""

    def body(carry: Any, row: Any) -> Any:
        return carry * WEIGHTS + row, jax.random.normal(key, (8,))

    p, _ = jax.lax.scan(body, jax.jit(inner)(p), WEIGHTS[:, None] * np.ones(8))
    p = jax.lax.cond(p.sum() > 0, lambda p: p * WEIGHTS, lambda p: p + WEIGHTS, p)
    return jax.lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * WEIGHTS), (0, p))[1]


def test_no_constant_is_wide_that_jax_has_kept_of_a_wide_program(wide: None) -> None:
    jitted, key = jax.jit(step), jax.random.key(0)
    expected = jitted(jnp.ones(8), key)
    with x64_off(jax):
        closed = in_32_bits(jax, jitted.trace(np.ones(8, np.float32), key).jaxpr)
        found = jax.jit(jax.extend.core.jaxpr_as_fun(closed))(np.ones(8, np.float32), key)[0]
    assert "64[" not in str(closed)
    assert found.dtype == "float32"
    assert np.allclose(found, expected, rtol=1e-5)


def test_keys_and_narrow_values_stay_what_they_are() -> None:
    for value in (jax.random.key(0), np.ones(3, np.float32), 2.0):
        assert narrow_value(jax, value) is value
