"""Fourier neural operator that forecasts long-crested swell on a periodic channel.

The reference propagates random sea states with the (linear) dispersion relation
of finite-depth water plus a weak quadratic correction; the operator has to map
the surface elevation at t to that at t + DT.
"""
import sys
import time
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

GRID = 128
MODES = 16
WIDTH = 32
DEPTH = 3
BATCH = 16
LENGTH = 1200.0     # metres
WATER = 18.0        # metres
DT = 6.0            # seconds
FIRST = 5


# ------------------------------------------------------------------ reference
def sea_states(n, seed):
    """n pairs (eta(t), eta(t+DT)) from a JONSWAP-like spectrum."""
    rng = np.random.default_rng(seed)
    k = 2 * np.pi * np.fft.rfftfreq(GRID, LENGTH / GRID)
    omega = np.sqrt(9.81 * k * np.tanh(k * WATER))
    peak = rng.uniform(0.03, 0.09, (n, 1))
    amp = np.exp(-((k[None] - peak) / (0.35 * peak)) ** 2) * rng.uniform(0.3, 2.0, (n, 1))
    phase = rng.uniform(0, 2 * np.pi, (n, k.size))
    spec = amp * np.exp(1j * phase) * GRID / 8
    eta0 = np.fft.irfft(spec, n=GRID, axis=-1)
    eta1 = np.fft.irfft(spec * np.exp(-1j * omega * DT), n=GRID, axis=-1)
    eta0 = eta0 + 0.05 * eta0 ** 2
    eta1 = eta1 + 0.05 * eta1 ** 2
    return eta0.astype(np.float32), eta1.astype(np.float32)


# ---------------------------------------------------------------------- model
class SpectralConv(eqx.Module):
    re: jax.Array
    im: jax.Array

    def __init__(self, key):
        a, b = jax.random.split(key)
        scale = 1.0 / WIDTH
        self.re = scale * jax.random.normal(a, (MODES, WIDTH, WIDTH))
        self.im = scale * jax.random.normal(b, (MODES, WIDTH, WIDTH))

    def __call__(self, x):                       # (GRID, WIDTH)
        f = jnp.fft.rfft(x, axis=0)
        low = jnp.einsum("mi,mio->mo", f[:MODES], jax.lax.complex(self.re, self.im))
        out = jnp.zeros_like(f).at[:MODES].set(low)
        return jnp.fft.irfft(out, n=GRID, axis=0)


class Block(eqx.Module):
    spectral: SpectralConv
    skip: eqx.nn.Linear
    mix: eqx.nn.MLP

    def __init__(self, key):
        a, b, c = jax.random.split(key, 3)
        self.spectral = SpectralConv(a)
        self.skip = eqx.nn.Linear(WIDTH, WIDTH, key=b)
        self.mix = eqx.nn.MLP(WIDTH, WIDTH, 2 * WIDTH, 1, activation=jax.nn.gelu, key=c)

    def __call__(self, x):
        h = jax.nn.gelu(self.spectral(x) + jax.vmap(self.skip)(x))
        return x + jax.vmap(self.mix)(h)


class Operator(eqx.Module):
    lift: eqx.nn.Linear
    blocks: list
    head: eqx.nn.MLP

    def __init__(self, key):
        keys = jax.random.split(key, DEPTH + 2)
        self.lift = eqx.nn.Linear(2, WIDTH, key=keys[0])
        self.blocks = [Block(k) for k in keys[1:-1]]
        self.head = eqx.nn.MLP(WIDTH, 1, 64, 1, activation=jax.nn.gelu, key=keys[-1])

    def __call__(self, eta):                     # (GRID,)
        x = jnp.stack([eta, jnp.linspace(0.0, 1.0, GRID, dtype=eta.dtype)], axis=-1)
        h = jax.vmap(self.lift)(x)
        for block in self.blocks:
            h = block(h)
        return jax.vmap(self.head)(h)[:, 0]


def objective(model, eta0, eta1, slope_weight):
    pred = jax.vmap(model)(eta0)
    err = pred - eta1
    slope = jnp.roll(err, -1, axis=-1) - err
    return jnp.mean(err ** 2) + slope_weight * jnp.mean(slope ** 2)


def batches(eta0, eta1, seed):
    rng = np.random.default_rng(seed)
    while True:
        order = rng.permutation(len(eta0))
        for i in range(0, len(order) - BATCH + 1, BATCH):
            pick = order[i:i + BATCH]
            yield eta0[pick], eta1[pick]


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
    model = Operator(jax.random.PRNGKey(0))
    ema = jax.tree.map(lambda x: jnp.array(x) if eqx.is_array(x) else x, model)
    sched = optax.warmup_cosine_decay_schedule(1e-4, 2e-3, 100, max(steps, 200))
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(sched, weight_decay=1e-5))
    opt_state = tx.init(eqx.filter(model, eqx.is_inexact_array))

    @eqx.filter_jit(donate="all-except-first")
    def step(batch, model, ema, opt_state):
        eta0, eta1, slope_weight = batch
        loss, grads = eqx.filter_value_and_grad(objective)(model, eta0, eta1, slope_weight)
        updates, opt_state = tx.update(grads, opt_state, eqx.filter(model, eqx.is_inexact_array))
        model = eqx.apply_updates(model, updates)
        ema = jax.tree.map(lambda e, m: 0.995 * e + 0.005 * m if eqx.is_inexact_array(m) else e, ema, model)
        return loss, model, ema, opt_state

    @eqx.filter_jit
    def relative_error(model, eta0, eta1):
        pred = jax.vmap(model)(eta0)
        return jnp.mean(jnp.linalg.norm(pred - eta1, axis=-1) / jnp.linalg.norm(eta1, axis=-1))

    feed = batches(*sea_states(4096, 1), seed=2)
    test = sea_states(64, 7)
    start = None
    for i in range(steps + FIRST):
        if i == FIRST:
            jax.block_until_ready(model)
            start = time.perf_counter()
        eta0, eta1 = next(feed)
        slope_weight = 4.0 * 0.98 ** (i // 10)
        loss, model, ema, opt_state = step((eta0, eta1, jnp.float32(slope_weight)), model, ema, opt_state)
        if i % 100 == 99:
            print(f"step {i + 1}  loss {float(loss):.5f}")
        if i % 500 == 499:
            print(f"   test error {float(relative_error(ema, *test)):.4f}")
    jax.block_until_ready((model, ema))
    spent = time.perf_counter() - start
    print(f"done {steps} steps in {spent:.3f} s")


if __name__ == "__main__":
    main()
