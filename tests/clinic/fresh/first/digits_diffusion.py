"""Denoising diffusion on the 8x8 digits: ten updates per dispatch with lax.scan.

    python healthy.py [STEPS]      STEPS is rounded up to a multiple of ten
"""
import sys
import time
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from sklearn.datasets import load_digits

PIXELS = 64
WIDTH = 32
LAYERS = 5
BATCH = 2048
INNER = 10
LR = 1e-3
EMA = 0.999


class Carry(NamedTuple):
    params: dict
    ema: dict
    mean: dict
    var: dict
    t: jax.Array
    key: jax.Array


def load_images():
    images, _ = load_digits(return_X_y=True)
    return jnp.asarray((images / 8.0 - 1.0).astype(np.float32))


def init_params(key):
    keys = iter(jax.random.split(key, 2 * LAYERS + 3))

    def dense(m, n):
        return {"w": jax.random.normal(next(keys), (m, n)) / m**0.5, "b": jnp.zeros((n,))}

    return {
        "inp": dense(PIXELS, WIDTH),
        "time": dense(16, WIDTH),
        "gates": [dense(WIDTH, 2 * WIDTH) for _ in range(LAYERS)],
        "mix": [dense(WIDTH, WIDTH) for _ in range(LAYERS)],
        "out": dense(WIDTH, PIXELS),
    }


def apply_dense(layer, x):
    return x @ layer["w"] + layer["b"]


def time_features(t):
    freq = 2.0 ** jnp.arange(8)
    angle = t[:, None] * freq
    return jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], axis=-1)


def predict_noise(params, x, t):
    h = apply_dense(params["inp"], x)
    temb = jnp.tanh(apply_dense(params["time"], time_features(t)))
    for gate, mix in zip(params["gates"], params["mix"]):
        a, b = jnp.split(apply_dense(gate, h + temb), 2, axis=-1)
        h = h + jnp.tanh(apply_dense(mix, jnp.tanh(a) * jax.nn.sigmoid(b)))
    return apply_dense(params["out"], h)


def alpha_sigma(t):
    angle = 0.5 * jnp.pi * (0.02 + 0.96 * t)
    return jnp.cos(angle), jnp.sin(angle)


def loss_fn(params, x0, t, noise):
    alpha, sigma = alpha_sigma(t)
    noisy = alpha[:, None] * x0 + sigma[:, None] * noise
    guess = predict_noise(params, noisy, t)
    loss = jnp.mean((guess - noise) ** 2)
    denoised = (noisy - sigma[:, None] * guess) / alpha[:, None]
    return loss, denoised


def update(images, carry, _):
    key, k_row, k_t, k_noise = jax.random.split(carry.key, 4)
    x0 = images[jax.random.randint(k_row, (BATCH,), 0, images.shape[0])]
    t = jax.random.uniform(k_t, (BATCH,))
    noise = jax.random.normal(k_noise, (BATCH, PIXELS))
    (loss, denoised), grads = jax.value_and_grad(loss_fn, has_aux=True)(carry.params, x0, t, noise)

    n = carry.t + 1.0
    mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, carry.mean, grads)
    var = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, carry.var, grads)
    rate = LR * jnp.sqrt(1.0 - 0.99**n) / (1.0 - 0.9**n)
    params = jax.tree.map(lambda p, m, v: p - rate * m / (jnp.sqrt(v) + 1e-8), carry.params, mean, var)
    ema = jax.tree.map(lambda e, p: EMA * e + (1.0 - EMA) * p, carry.ema, params)
    error = jnp.mean((denoised - x0) ** 2)
    return Carry(params, ema, mean, var, n, key), (loss, error)


@partial(jax.jit, donate_argnums=0)
def run_chunk(carry, images):
    return lax.scan(partial(update, images), carry, None, length=INNER)


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 40000
    chunks = -(-steps // INNER)
    images = load_images()
    params = init_params(jax.random.PRNGKey(0))
    zeros = partial(jax.tree.map, jnp.zeros_like)
    carry = Carry(params, jax.tree.map(jnp.copy, params), zeros(params), zeros(params), jnp.zeros(()), jax.random.PRNGKey(1))

    carry, (losses, errors) = run_chunk(carry, images)
    jax.block_until_ready(carry)
    start = time.perf_counter()
    for chunk in range(1, chunks + 1):
        carry, (losses, errors) = run_chunk(carry, images)
        if chunk % 10 == 0:
            print(f"step {chunk * INNER}  loss {losses.mean():.4f}  error {errors.mean():.4f}", flush=True)
    jax.block_until_ready(carry)
    print(f"done {chunks * INNER} steps in {time.perf_counter() - start:.2f} s")


if __name__ == "__main__":
    main()
