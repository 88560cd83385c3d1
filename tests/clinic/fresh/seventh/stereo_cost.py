"""Siamese patch matching cost for stereo (MC-CNN "fast" flavour) on random-texture scenes.

A loader thread cuts (left, right+, right-) patch triples from rendered pairs; the
network learns that the dot product of matching patches is larger by a margin.
"""
import sys
import time
import queue
import threading

import numpy as np
from scipy import ndimage
import jax
import jax.numpy as jnp
import equinox as eqx
import optax

PATCH = 11
HALF = PATCH // 2
BATCH = 256
MAX_DISP = 24
MARGIN = 0.2


def render_scenes(n, size, rng):
    """Piecewise-constant disparities over band-limited noise textures."""
    lefts, rights, disps = [], [], []
    cols = np.arange(size)
    for _ in range(n):
        tex = ndimage.gaussian_filter(rng.standard_normal((size, size)), 1.0)
        disp = np.full((size, size), 4, np.int64)
        for _ in range(8):
            y, x = rng.integers(0, size - 40, 2)
            disp[y:y + 40, x:x + 40] = rng.integers(4, MAX_DISP)
        src = np.clip(cols[None, :] - disp, 0, size - 1)
        right = np.zeros_like(tex)
        np.put_along_axis(right, src, tex, axis=1)
        lefts.append(tex / tex.std())
        rights.append((right + 0.05 * rng.standard_normal(right.shape)) / tex.std())
        disps.append(disp)
    return (np.stack(lefts).astype(np.float32), np.stack(rights).astype(np.float32),
            np.stack(disps))


class PatchNet(eqx.Module):
    convs: list
    proj: eqx.nn.Linear

    def __init__(self, key, width=32, feat=64):
        ks = jax.random.split(key, 4)
        chans = [1, width, width, width]
        self.convs = [eqx.nn.Conv2d(a, b, 3, key=k) for a, b, k in zip(chans, chans[1:], ks)]
        self.proj = eqx.nn.Linear(width * 5 * 5, feat, key=ks[3])

    def __call__(self, p):
        h = p[None]
        for c in self.convs:
            h = jax.nn.relu(c(h))
        h = self.proj(h.ravel())
        return h * jax.lax.rsqrt(jnp.sum(h * h) + 1e-6)


def triples(scenes, batch, seed):
    """Endless stream of float32 [3, batch, PATCH, PATCH]."""
    left, right, disp = scenes
    n, size, _ = left.shape
    win = np.lib.stride_tricks.sliding_window_view
    lw, rw = win(left, (PATCH, PATCH), (1, 2)), win(right, (PATCH, PATCH), (1, 2))
    rng = np.random.default_rng(seed)
    while True:
        i = rng.integers(0, n, batch)
        y = rng.integers(HALF, size - HALF, batch)
        x = rng.integers(HALF + MAX_DISP + 8, size - HALF, batch)
        xr = x - disp[i, y, x]
        off = rng.integers(3, 8, batch) * rng.choice([-1, 1], batch)
        xn = np.clip(xr + off, HALF, size - HALF - 1)
        y0 = y - HALF
        out = np.stack([lw[i, y0, x - HALF], rw[i, y0, xr - HALF], rw[i, y0, xn - HALF]])
        yield out


def threaded(gen, depth=4):
    q = queue.Queue(maxsize=depth)

    def work():
        for item in gen:
            q.put(jnp.asarray(item))

    threading.Thread(target=work, daemon=True).start()
    while True:
        yield q.get()


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 6000
    rng = np.random.default_rng(0)
    scenes = render_scenes(24, 192, rng)
    net = PatchNet(jax.random.key(0))
    params, static = eqx.partition(net, eqx.is_inexact_array)
    opt = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3))
    opt_state = opt.init(params)

    def loss_fn(params, batch):
        net = eqx.combine(params, static)
        f = jax.vmap(net)(batch.reshape(-1, PATCH, PATCH)).reshape(3, batch.shape[1], -1)
        pos, neg = jnp.sum(f[0] * f[1], -1), jnp.sum(f[0] * f[2], -1)
        return jnp.mean(jax.nn.relu(MARGIN + neg - pos)), jnp.mean(pos > neg)

    @jax.jit
    def evaluate(params, batch):
        return loss_fn(params, batch)

    def step(params, opt_state, batch):
        (loss, acc), g = jax.value_and_grad(loss_fn, has_aux=True)(params, batch)
        upd, opt_state = opt.update(g, opt_state, params)
        return optax.apply_updates(params, upd), opt_state, loss, acc

    step = jax.jit(step, donate_argnums=(0, 1))
    feed = threaded(triples(scenes, BATCH, 1))
    held_out = jnp.asarray(next(triples(scenes, BATCH, 99)))

    for _ in range(4):
        params, opt_state, loss, acc = step(params, opt_state, next(feed))
    jax.block_until_ready(evaluate(params, held_out))
    t0 = time.perf_counter()
    for k in range(1, steps + 1):
        params, opt_state, loss, acc = step(params, opt_state, next(feed))
        if k % 500 == 0:
            vl, va = evaluate(params, held_out)
            print(f"{k:6d}  hinge {float(loss):.4f}  held-out {float(vl):.4f}  acc {float(va):.3f}")
    jax.block_until_ready(params)
    print(f"done {steps} steps in {time.perf_counter() - t0:.4f} s")


if __name__ == "__main__":
    main()
