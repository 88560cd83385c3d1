#!/usr/bin/env python
# Reconstruction-based anomaly detector for turbine telemetry.
# Temporal-convolution autoencoder in plain jnp; Adam by hand; windows are cut
# by a background thread.   usage: turbine_tcn.py [STEPS]
import argparse
import queue
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

ap = argparse.ArgumentParser()
ap.add_argument("steps", nargs="?", type=int, default=25000)
ap.add_argument("--window", type=int, default=128)
ap.add_argument("--batch", type=int, default=24)
ap.add_argument("--hidden", type=int, default=48)
ap.add_argument("--lr", type=float, default=1e-3)
ap.add_argument("--queue", type=int, default=6)
args = ap.parse_args()

SENSORS = 12
DILATIONS = (1, 2, 4, 8)


def simulate_turbine(length=200_000, seed=3):
    rng = np.random.default_rng(seed)
    t = np.arange(length, dtype=np.float32)[:, None]
    freq = rng.uniform(0.002, 0.2, (1, SENSORS)).astype(np.float32)
    phase = rng.uniform(0, 6.28, (1, SENSORS)).astype(np.float32)
    load = np.repeat(rng.uniform(0.4, 1.0, length // 500).astype(np.float32), 500)[:, None]
    x = load * np.sin(freq * t + phase)
    x += 0.05 * rng.standard_normal(x.shape, dtype=np.float32)
    return (x - x.mean(0)) / x.std(0)


class WindowLoader(threading.Thread):
    """Cuts random windows out of the telemetry and keeps a few batches ready."""

    def __init__(self, series, window, batch, depth):
        super().__init__(daemon=True)
        self.views = np.lib.stride_tricks.sliding_window_view(series, window, axis=0)
        self.batch = batch
        self.rng = np.random.default_rng(11)
        self.q = queue.Queue(depth)
        self.stopping = threading.Event()

    def cut(self):
        at = self.rng.integers(0, len(self.views), self.batch)
        w = self.views[at].transpose(0, 2, 1)
        return np.ascontiguousarray(w)

    def run(self):
        while not self.stopping.is_set():
            item = self.cut()
            self.q.put(item)

    def __next__(self):
        return self.q.get()


def glorot(key, shape):
    fan = shape[0] * shape[1] + shape[2]
    return jax.random.normal(key, shape) * jnp.sqrt(2.0 / fan)


def init_params(key, h):
    keys = iter(jax.random.split(key, 32))
    p = {"in": {"w": glorot(next(keys), (1, SENSORS, h)), "b": jnp.zeros(h)}}
    for side in ("enc", "dec"):
        for d in DILATIONS:
            p[f"{side}{d}"] = {"w": glorot(next(keys), (3, h, h)), "b": jnp.zeros(h),
                               "gain": jnp.ones(h)}
    p["squeeze"] = {"w": glorot(next(keys), (1, h, 6)), "b": jnp.zeros(6)}
    p["expand"] = {"w": glorot(next(keys), (1, 6, h)), "b": jnp.zeros(h)}
    p["out"] = {"w": glorot(next(keys), (1, h, SENSORS)), "b": jnp.zeros(SENSORS)}
    return p


def pointwise(p, x):
    return x @ p["w"][0] + p["b"]


def tconv(p, x, dilation):
    """Causal dilated convolution of width 3, as three shifted products."""
    pad = jnp.pad(x, ((0, 0), (2 * dilation, 0), (0, 0)))
    n = x.shape[1]
    taps = [lax.slice_in_dim(pad, k * dilation, k * dilation + n, axis=1) for k in range(3)]
    y = jnp.concatenate(taps, -1) @ p["w"].reshape(-1, p["w"].shape[-1])
    return x + p["gain"] * jax.nn.relu(y + p["b"])


def reconstruct(p, x):
    h = pointwise(p["in"], x)
    for d in DILATIONS:
        h = tconv(p[f"enc{d}"], h, d)
    z = pointwise(p["squeeze"], h)
    z = z.reshape(z.shape[0], -1, 4, z.shape[-1]).mean(2)
    h = pointwise(p["expand"], jnp.repeat(z, 4, axis=1))
    for d in reversed(DILATIONS):
        h = tconv(p[f"dec{d}"], h, d)
    return pointwise(p["out"], h)


def loss_fn(p, x):
    target = x
    err = reconstruct(p, x) - target
    return jnp.mean(jnp.where(jnp.abs(err) < 1, 0.5 * err**2, jnp.abs(err) - 0.5))


def adam(p, m, v, g, t, b1=0.9, b2=0.999, eps=1e-8):
    m = jax.tree.map(lambda a, b: b1 * a + (1 - b1) * b, m, g)
    v = jax.tree.map(lambda a, b: b2 * a + (1 - b2) * b * b, v, g)
    scale = args.lr * jnp.sqrt(1 - b2**t) / (1 - b1**t)
    p = jax.tree.map(lambda w, a, b: w - scale * a / (jnp.sqrt(b) + eps), p, m, v)
    return p, m, v


def clip(g, limit=1.0):
    norm = jnp.sqrt(sum(jnp.sum(x * x) for x in jax.tree.leaves(g)))
    return jax.tree.map(lambda x: x * jnp.minimum(1.0, limit / (norm + 1e-6)), g)


def update(state, x):
    p, m, v, t = state
    loss, g = jax.value_and_grad(loss_fn)(p, x)
    t = t + 1.0
    p, m, v = adam(p, m, v, clip(g), t)
    return (p, m, v, t), loss


update = jax.jit(update, donate_argnums=0)


def main():
    loader = WindowLoader(simulate_turbine(), args.window, args.batch, args.queue)
    loader.start()
    params = init_params(jax.random.key(0), args.hidden)
    zeros = lambda: jax.tree.map(jnp.zeros_like, params)
    state = (params, zeros(), zeros(), jnp.zeros(()))
    for _ in range(5):
        state, loss = update(state, next(loader))
    jax.block_until_ready(state)
    tic = time.perf_counter()
    for i in range(args.steps):
        state, loss = update(state, next(loader))
        if i % 1000 == 999:
            print(f"[{i + 1}] huber {float(loss):.5f}")
    jax.block_until_ready((state, loss))
    took = time.perf_counter() - tic
    loader.stopping.set()
    print(f"done {args.steps} steps in {took:.4f} s")


if __name__ == "__main__":
    main()
