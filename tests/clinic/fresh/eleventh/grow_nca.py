"""Growing neural cellular automata with a sample pool (flax nnx).

A cell rule learns to grow a ring-and-dots emblem from one seed and to heal it after
damage.  usage: python grow_nca.py [STEPS]
"""
import os
import sys
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

SIZE, CH, HIDDEN = 20, 12, 64
POOL, BATCH, TICKS = 128, 4, 12
FIRE = 0.5


def emblem():
    yy, xx = np.mgrid[:SIZE, :SIZE] / (SIZE - 1) * 2 - 1
    r = np.hypot(xx, yy)
    ring = (np.abs(r - 0.6) < 0.13).astype(np.float32)
    dots = sum((np.hypot(xx - 0.6 * np.cos(a), yy - 0.6 * np.sin(a)) < 0.2) for a in
               np.linspace(0, 2 * np.pi, 5, endpoint=False)).clip(0, 1).astype(np.float32)
    core = (r < 0.25).astype(np.float32)
    alpha = np.maximum(np.maximum(ring, dots), core)
    return jnp.asarray(np.stack([dots * alpha, core * alpha, ring * alpha, alpha], -1))


def seed_cells(n):
    s = np.zeros((n, SIZE, SIZE, CH), np.float32)
    s[:, SIZE // 2, SIZE // 2, 3:] = 1.0
    return jnp.asarray(s)


class Rule(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.inner = nnx.Linear(3 * CH, HIDDEN, rngs=rngs)
        self.outer = nnx.Linear(HIDDEN, CH, kernel_init=nnx.initializers.zeros, rngs=rngs)

    def __call__(self, percept):
        return self.outer(nnx.relu(self.inner(percept)))


def shift(x, dy, dx):
    return jnp.roll(x, (dy, dx), (1, 2))


def perceive(x):
    """Identity and the two Sobel filters, each channel for itself."""
    v = shift(x, 1, 0) + 2 * x + shift(x, -1, 0)
    h = shift(x, 0, 1) + 2 * x + shift(x, 0, -1)
    gx = (shift(v, 0, -1) - shift(v, 0, 1)) / 8
    gy = (shift(h, -1, 0) - shift(h, 1, 0)) / 8
    return jnp.concatenate([x, gx, gy], -1)


def alive(x):
    a = x[..., 3:4]
    a = jnp.maximum(jnp.maximum(shift(a, 1, 0), shift(a, -1, 0)), a)
    a = jnp.maximum(jnp.maximum(shift(a, 0, 1), shift(a, 0, -1)), a)
    return a > 0.1


class Colony(NamedTuple):
    params: nnx.State
    opt: optax.OptState
    pool: jax.Array
    key: jax.Array


class Gardener:
    def __init__(self, steps):
        self.target = emblem()
        self.graph, params = nnx.split(Rule(nnx.Rngs(0)))
        self.tx = optax.chain(optax.clip_by_global_norm(1.0),
                              optax.adam(optax.piecewise_constant_schedule(2e-3, {steps // 2: .3})))
        self.colony = Colony(params, self.tx.init(params), seed_cells(POOL), jax.random.key(5))
        self.step = jax.jit(self._step, donate_argnums=0)

    def tick(self, rule, x, key):
        before = alive(x)
        fire = jax.random.bernoulli(key, FIRE, x.shape[:3] + (1,))
        x = x + rule(perceive(x)) * fire
        return x * (before & alive(x))

    def grow(self, params, x, key):
        rule = nnx.merge(self.graph, params)

        def body(cells, k):
            return self.tick(rule, cells, k), None

        x, _ = jax.lax.scan(body, x, jax.random.split(key, TICKS))
        return x

    def loss(self, params, x, key):
        out = self.grow(params, x, key)
        err = jnp.mean((out[..., :4] - self.target) ** 2, (1, 2, 3))
        return jnp.mean(err) + 1e-3 * jnp.mean(jnp.abs(out) > 3.0), (out, err)

    def _step(self, colony, which, hurt):
        params, opt, pool, key = colony
        key, sub = jax.random.split(key)
        x = pool[which] * hurt
        x = x.at[0].set(seed_cells(1)[0])
        (loss, (out, err)), g = jax.value_and_grad(self.loss, has_aux=True)(params, x, sub)
        upd, opt = self.tx.update(g, opt, params)
        params = optax.apply_updates(params, upd)
        return Colony(params, opt, pool.at[which].set(out), key), loss


def visits(rng):
    """Which colonies of the pool come next, and where a disc is cut out of one of them."""
    yy, xx = np.mgrid[:SIZE, :SIZE]
    while True:
        which = rng.choice(POOL, BATCH, replace=False).astype(np.int32)
        hurt = np.ones((BATCH, SIZE, SIZE, 1), np.float32)
        cy, cx = rng.integers(5, SIZE - 5, 2)
        hurt[-1, (yy - cy) ** 2 + (xx - cx) ** 2 < rng.integers(9, 36)] = 0.0
        yield which, hurt


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 2500
    g = Gardener(steps)
    skip = steps // 4
    for i, (which, hurt) in zip(range(steps), visits(np.random.default_rng(0))):
        if i == skip:
            jax.block_until_ready(g.colony)
            t = time.perf_counter()
        g.colony, loss = g.step(g.colony, which, hurt)
        if i % 50 == 0:
            print(i, "loss", round(float(loss), 5), flush=True)
    jax.block_until_ready(g.colony)
    print(f"done {steps - skip} steps in {time.perf_counter() - t:.3f} s")


if __name__ == "__main__":
    main()
