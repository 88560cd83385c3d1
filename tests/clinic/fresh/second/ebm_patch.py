"""An energy model of texture patches, trained with persistent contrastive divergence.

Negative samples live in a large replay buffer on the device; every step takes some chains out, runs
Langevin dynamics on them, puts them back, and moves the energies of data and samples apart.
The weights are written to a checkpoint now and then.

    python ebm_patch.py [STEPS]
"""
import os
import pickle
import sys
import tempfile
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

SIDE = 16
PIXELS = SIDE * SIDE
WIDTH = 256
CHAINS = 96
BUFFER = 32_768
LANGEVIN = 16
STEP_SIZE, NOISE = 0.6, 0.01
REBIRTH = 0.03
LR, MOMENTUM, REGULARISE = 1e-3, 0.9, 0.05
SAVE_EVERY = 1000


# ------------------------------------------------------------ textures

def textures(count, seed):
    """Oriented gratings with a soft spot of another grating, in [-1, 1]."""
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[0:SIDE, 0:SIDE] / SIDE

    def grating():
        angle = rng.uniform(0, np.pi, (count, 1, 1))
        freq = rng.uniform(1.5, 4.0, (count, 1, 1))
        phase = rng.uniform(0, 2 * np.pi, (count, 1, 1))
        return np.sin(2 * np.pi * freq * (np.cos(angle) * xx + np.sin(angle) * yy) + phase)

    cx, cy = rng.uniform(0.25, 0.75, (2, count, 1, 1))
    spot = np.exp(-((xx - cx) ** 2 + (yy - cy) ** 2) / 0.05)
    images = (1 - spot) * grating() + spot * grating()
    return images.reshape(count, PIXELS).astype(np.float32)


# ------------------------------------------------------------ energy

def init(key):
    sizes = [PIXELS, WIDTH, WIDTH, WIDTH, 1]
    keys = jax.random.split(key, len(sizes) - 1)
    return [{"w": jax.random.normal(k, (a, b)) * (1.5 / a) ** 0.5, "b": jnp.zeros(b)}
            for k, a, b in zip(keys, sizes[:-1], sizes[1:])]


def energy(params, x):
    h = x
    for layer in params[:-1]:
        h = jax.nn.silu(h @ layer["w"] + layer["b"])
    out = h @ params[-1]["w"] + params[-1]["b"]
    return out[:, 0] + 0.01 * jnp.sum(x * x, -1)


def slope(params, x):
    return jax.grad(lambda v: energy(params, v).sum())(x)


# ------------------------------------------------------------ sampling

@jax.jit
def langevin(params, x, key, step_size):
    def move(i, carry):
        x, key = carry
        key, sub = jax.random.split(key)
        x = x - step_size * jnp.clip(slope(params, x), -0.5, 0.5)
        x = x + NOISE * jax.random.normal(sub, x.shape)
        return jnp.clip(x, -1.2, 1.2), key
    return jax.lax.fori_loop(0, LANGEVIN, move, (x, key))[0]


@jax.jit
def take_chains(buffer, key):
    k1, k2, k3 = jax.random.split(key, 3)
    rows = jax.random.randint(k1, (CHAINS,), 0, buffer.shape[0])
    born = jax.random.uniform(k2, (CHAINS, 1)) < REBIRTH
    return rows, jnp.where(born, jax.random.uniform(k3, (CHAINS, PIXELS), minval=-1), buffer[rows])


@partial(jax.jit, donate_argnums=(0,))
def put_back(buffer, rows, x):
    return buffer.at[rows].set(x)


# ------------------------------------------------------------ learning

def contrast(params, real, fake):
    up, down = energy(params, real), energy(params, fake)
    return up.mean() - down.mean() + REGULARISE * (up ** 2 + down ** 2).mean(), up.mean() - down.mean()


@partial(jax.jit, donate_argnums=(0, 1))
def learn(params, velocity, images, fake, key):
    k1, k2 = jax.random.split(key)
    real = images[jax.random.randint(k1, (CHAINS,), 0, images.shape[0])]
    real = real + 0.02 * jax.random.normal(k2, real.shape)
    (_, gap), grads = jax.value_and_grad(contrast, has_aux=True)(params, real, fake)
    norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(grads)))
    scale = jnp.minimum(1.0, 1.0 / (norm + 1e-6))
    velocity = jax.tree.map(lambda v, g: MOMENTUM * v + scale * g, velocity, grads)
    params = jax.tree.map(lambda p, v: p - LR * v, params, velocity)
    return params, velocity, gap


def anneal(step):
    """Langevin moves shrink slowly."""
    return STEP_SIZE * 0.5 ** (step / 5000)


class Checkpoint:
    def __init__(self):
        self.path = os.path.join(tempfile.mkdtemp(prefix="ebm_"), "weights.pkl")

    def save(self, step, params):
        with open(self.path + ".new", "wb") as f:
            pickle.dump({"step": step, "params": jax.tree.map(np.asarray, params)}, f)
        os.replace(self.path + ".new", self.path)


def main(steps):
    images = jax.device_put(textures(40_000, seed=2))
    key, k0, k1 = jax.random.split(jax.random.PRNGKey(0), 3)
    params = init(k0)
    velocity = jax.tree.map(jnp.zeros_like, params)
    buffer = jax.random.uniform(k1, (BUFFER, PIXELS), minval=-1.0)
    checkpoint = Checkpoint()

    start = 0.0
    keys = iter(())
    for step in range(steps):
        if step == 5:
            jax.block_until_ready((params, buffer))
            start = time.perf_counter()
        if step % 256 == 0:
            key, sub = jax.random.split(key)
            keys = iter(np.asarray(jax.random.split(sub, 3 * 256)))
        rows, x = take_chains(buffer, next(keys))
        x = langevin(params, x, next(keys), anneal(step))
        buffer = put_back(buffer, rows, x)
        params, velocity, gap = learn(params, velocity, images, x, next(keys))
        if (step + 1) % 500 == 0:
            print(f"step {step + 1}  energy gap {float(gap):+.4f}", flush=True)
        if (step + 1) % SAVE_EVERY == 0:
            checkpoint.save(step + 1, params)
    jax.block_until_ready((params, buffer))
    print(f"done {steps - 5} steps in {time.perf_counter() - start:.3f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5500)
