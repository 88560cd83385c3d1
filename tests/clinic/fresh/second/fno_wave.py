"""A Fourier neural operator (haiku) that learns to carry waves through a medium of uneven speed.

The batch is sharded over a mesh of all devices. The solver that makes the training pairs is numpy; the
main thread solves a few fresh ones for the pool while the device is busy with the step.

    python fno_wave.py [STEPS]
"""
import sys
import time

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

GRID = 128
TIME_STEPS = 160
DT = 0.2 / GRID
POOL = 4096
FRESH = 16
BATCH = 32
WIDTH = 40
MODES = 20
BLOCKS = 4
REPORT = 200


# ---------------------------------------------------------------- solver

def random_fields(rng, n, decay):
    k = np.arange(1, 9)
    a = rng.standard_normal((n, 8)) / k ** decay
    phase = rng.uniform(0, 2 * np.pi, (n, 8))
    x = np.arange(GRID) / GRID
    return (a[..., None] * np.sin(2 * np.pi * k[:, None] * x + phase[..., None])).sum(1)


def solve(speed, u):
    """Leapfrog for u_tt = c(x)^2 u_xx on a ring, starting at rest."""
    factor = (speed * DT * GRID) ** 2
    before = u
    for _ in range(TIME_STEPS):
        bend = np.roll(u, 1, -1) + np.roll(u, -1, -1) - 2 * u
        before, u = u, 2 * u - before + factor * bend
    return u


def make_pairs(rng, n):
    speed = 1.0 + 0.5 * np.tanh(random_fields(rng, n, 0.5))
    u0 = random_fields(rng, n, 1.0)
    u0 /= u0.std(-1, keepdims=True)
    inputs = np.stack([u0, speed], -1).astype(np.float32)
    return inputs, solve(speed, u0).astype(np.float32)


class Pool:
    """Training pairs; the oldest are replaced as the training goes on."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.inputs, self.targets = make_pairs(self.rng, POOL)
        self.at = 0

    def refresh(self):
        inputs, targets = make_pairs(self.rng, FRESH)
        rows = slice(self.at, self.at + FRESH)
        self.inputs[rows], self.targets[rows] = inputs, targets
        self.at = (self.at + FRESH) % POOL

    def batch(self):
        rows = self.rng.integers(0, POOL, BATCH)
        return self.inputs[rows], self.targets[rows]


# ---------------------------------------------------------------- operator

class SpectralConv(hk.Module):
    def __init__(self, width, modes, name=None):
        super().__init__(name)
        self.width, self.modes = width, modes

    def __call__(self, x):
        init = hk.initializers.RandomNormal(1.0 / self.width)
        shape = (self.modes, x.shape[-1], self.width)
        re = hk.get_parameter("re", shape, init=init)
        im = hk.get_parameter("im", shape, init=init)
        f = jnp.fft.rfft(x, axis=1)[:, : self.modes]
        g = jnp.einsum("bki,kio->bko", f, jax.lax.complex(re, im))
        g = jnp.pad(g, ((0, 0), (0, x.shape[1] // 2 + 1 - self.modes), (0, 0)))
        return jnp.fft.irfft(g, n=x.shape[1], axis=1)


def operator(x):
    grid = jnp.broadcast_to(jnp.linspace(0, 1, x.shape[1])[None, :, None], x.shape[:2] + (1,))
    h = hk.Linear(WIDTH)(jnp.concatenate([x, grid], -1))
    for i in range(BLOCKS):
        h = h + jax.nn.gelu(SpectralConv(WIDTH, MODES, f"spectral{i}")(h) + hk.Linear(WIDTH)(h))
    return hk.Linear(1)(jax.nn.gelu(hk.Linear(64)(h)))[..., 0]


net = hk.without_apply_rng(hk.transform(operator))


def relative_error(guess, target):
    return jnp.sqrt(jnp.sum((guess - target) ** 2, -1) / jnp.sum(target ** 2, -1))


class Trainer:
    def __init__(self, steps):
        self.mesh = Mesh(np.array(jax.devices()), ("data",))
        self.split = NamedSharding(self.mesh, PartitionSpec("data"))
        self.whole = NamedSharding(self.mesh, PartitionSpec())
        self.tx = optax.adamw(optax.warmup_cosine_decay_schedule(1e-4, 2e-3, 100, max(steps, 200)), weight_decay=1e-5)
        params = net.init(jax.random.PRNGKey(0), jnp.zeros((1, GRID, 2)))
        self.params = jax.device_put(params, self.whole)
        self.opt = jax.device_put(self.tx.init(params), self.whole)
        self.step = jax.jit(self._step, donate_argnums=(0, 1),
                            in_shardings=(self.whole, self.whole, self.split, self.split),
                            out_shardings=(self.whole, self.whole, self.whole))
        self.measure = jax.jit(lambda p, x, y: relative_error(net.apply(p, x), y).mean())

    def loss(self, params, inputs, targets):
        guess = net.apply(params, inputs)
        error = relative_error(guess, targets)
        slope = relative_error(jnp.roll(guess, 1, -1) - guess, jnp.roll(targets, 1, -1) - targets)
        return jnp.mean(error + 0.1 * slope)

    def _step(self, params, opt, inputs, targets):
        loss, grads = jax.value_and_grad(self.loss)(params, inputs, targets)
        updates, opt = self.tx.update(grads, opt, params)
        return optax.apply_updates(params, updates), opt, loss

    def train(self, pool, steps, test):
        def put(batch):
            return jax.device_put(batch, self.split)

        waiting = put(pool.batch())
        start, warm, running = 0.0, 5, []
        for i in range(steps):
            if i == warm:
                jax.block_until_ready(self.params)
                start = time.perf_counter()
            self.params, self.opt, loss = self.step(self.params, self.opt, *waiting)
            pool.refresh()
            waiting = put(pool.batch())
            running.append(loss)
            if len(running) == REPORT:
                print(f"step {i + 1}  train {np.mean(jax.device_get(running)):.4f}  "
                      f"test {float(self.measure(self.params, *test)):.4f}", flush=True)
                running = []
        jax.block_until_ready(self.params)
        return steps - warm, time.perf_counter() - start


def main(steps):
    test = jax.device_put(make_pairs(np.random.default_rng(99), 128))
    count, seconds = Trainer(steps).train(Pool(seed=1), steps, test)
    print(f"done {count} steps in {seconds:.3f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5500)
