"""A training program that can be made longer by some percent: its step, its data, its compilation.

python gated.py [--step N] [--data N] [--compile N] [--width N]

Each part is made of equal units, 100 by default, so that 105 make that part 5 % longer.
"""

import argparse
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

BATCH, UNITS = 32, 100


def main() -> None:
    """Train for ever."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--step", type=int, default=UNITS)
    parser.add_argument("--data", type=int, default=0)
    parser.add_argument("--compile", type=int, default=UNITS)
    parser.add_argument("--width", type=int, default=64)
    options = parser.parse_args()
    generator = np.random.default_rng(0)

    def loss(weights: jax.Array, inputs: jax.Array) -> jax.Array:
        def layer(hidden: jax.Array, _: None) -> tuple[jax.Array, None]:
            return jnp.tanh(hidden @ weights), None

        hidden, _ = jax.lax.scan(layer, inputs, length=options.step)
        return (hidden**2).mean()

    @partial(jax.jit, donate_argnums=0)
    def step(weights: jax.Array, inputs: jax.Array) -> tuple[jax.Array, jax.Array]:
        value, gradient = jax.value_and_grad(loss)(weights, inputs)
        return weights - 1e-3 * gradient, value

    def prepare(weights: jax.Array) -> jax.Array:
        for _ in range(options.compile):  # written out, so that it takes long to compile
            weights = jnp.sin(weights) @ weights + 1
        return weights

    def batch() -> np.ndarray:
        inputs = generator.standard_normal((BATCH, options.width), np.float32)
        for _ in range(options.data):
            inputs = np.sort(inputs, axis=0)[::-1].copy()
        return inputs

    weights = jnp.asarray(generator.standard_normal((options.width,) * 2, np.float32) / 8)
    jax.jit(prepare)(weights).block_until_ready()
    while True:
        weights, value = step(weights, batch())
        if options.data:
            value.block_until_ready()


if __name__ == "__main__":
    main()
