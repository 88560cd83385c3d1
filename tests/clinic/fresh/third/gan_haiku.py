"""Instance-noise GAN on small synthetic digits-like images, dm-haiku + optax.

usage: python gan_haiku.py [STEPS]
"""
import functools
import sys
import time
from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax

SIDE = 16
PIXELS = SIDE * SIDE
LATENT = 32
BATCH = 64
HIDDEN = 128
EPOCH = 50
LOG_EVERY = 500


class GANState(NamedTuple):
    gen: hk.Params
    disc: hk.Params
    gen_opt: optax.OptState
    disc_opt: optax.OptState
    key: jax.Array


def make_images(n, seed=0):
    """Smooth blobs with random centre and width, in [-1, 1]."""
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[0:SIDE, 0:SIDE].astype(np.float32)
    cx = rng.uniform(4, SIDE - 4, (n, 1, 1)).astype(np.float32)
    cy = rng.uniform(4, SIDE - 4, (n, 1, 1)).astype(np.float32)
    w = rng.uniform(1.5, 4.0, (n, 1, 1)).astype(np.float32)
    img = np.exp(-((xx - cx) ** 2 + (yy - cy) ** 2) / (2 * w * w))
    return (2.0 * img - 1.0).reshape(n, PIXELS).astype(np.float32)


def generator(z):
    net = hk.Sequential([
        hk.Linear(HIDDEN), jax.nn.relu,
        hk.Linear(HIDDEN), jax.nn.relu,
        hk.Linear(HIDDEN), jax.nn.relu,
        hk.Linear(PIXELS), jnp.tanh,
    ])
    return net(z)


def discriminator(x):
    leaky = functools.partial(jax.nn.leaky_relu, negative_slope=0.2)
    net = hk.Sequential([
        hk.Linear(HIDDEN), leaky,
        hk.Linear(HIDDEN), leaky,
        hk.Linear(HIDDEN), leaky,
        hk.Linear(1),
    ])
    return net(x)[:, 0]


gen_net = hk.without_apply_rng(hk.transform(generator))
disc_net = hk.without_apply_rng(hk.transform(discriminator))
gen_tx = optax.adam(2e-4, b1=0.5)
disc_tx = optax.adam(1e-4, b1=0.5)


def init_state(seed):
    key = jax.random.PRNGKey(seed)
    k1, k2, key = jax.random.split(key, 3)
    gen = gen_net.init(k1, jnp.zeros((1, LATENT)))
    disc = disc_net.init(k2, jnp.zeros((1, PIXELS)))
    return GANState(gen, disc, gen_tx.init(gen), disc_tx.init(disc), key)


def disc_loss(disc, gen, real, z, noise):
    fake = gen_net.apply(gen, z)
    on_real = disc_net.apply(disc, real + noise)
    on_fake = disc_net.apply(disc, fake + noise)
    return jnp.mean(jax.nn.softplus(-on_real)) + jnp.mean(jax.nn.softplus(on_fake))


def gen_loss(gen, disc, z, noise):
    fake = gen_net.apply(gen, z)
    return jnp.mean(jax.nn.softplus(-disc_net.apply(disc, fake + noise)))


@functools.partial(jax.jit, donate_argnums=0)
def train_step(state, images, sigma):
    key, k_idx, k_z, k_n = jax.random.split(state.key, 4)
    idx = jax.random.randint(k_idx, (BATCH,), 0, images.shape[0])
    real = images[idx]
    z = jax.random.normal(k_z, (2, BATCH, LATENT))
    noise = sigma * jax.random.normal(k_n, (BATCH, PIXELS))

    d_loss, d_grads = jax.value_and_grad(disc_loss)(
        state.disc, state.gen, real, z[0], noise)
    d_upd, disc_opt = disc_tx.update(d_grads, state.disc_opt)
    disc = optax.apply_updates(state.disc, d_upd)

    g_loss, g_grads = jax.value_and_grad(gen_loss)(state.gen, disc, z[1], noise)
    g_upd, gen_opt = gen_tx.update(g_grads, state.gen_opt)
    gen = optax.apply_updates(state.gen, g_upd)

    return GANState(gen, disc, gen_opt, disc_opt, key), (d_loss, g_loss)


def noise_schedule(step):
    return 0.3 * 0.97 ** (step // EPOCH)


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    images = jnp.asarray(make_images(8192))
    state = init_state(seed=1)

    start = None
    for step in range(steps):
        if step == 3:
            jax.block_until_ready(state)
            start = time.perf_counter()
        sigma = noise_schedule(step)
        state, (d_loss, g_loss) = train_step(state, images, sigma)
        if step % LOG_EVERY == 0:
            print(f"step {step:6d}  d {float(d_loss):.4f}  g {float(g_loss):.4f}", flush=True)

    jax.block_until_ready(state)
    secs = time.perf_counter() - start
    print(f"done {steps - 3} steps in {secs:.4f} s")


if __name__ == "__main__":
    main()
