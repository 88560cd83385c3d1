# Gesture recognition from an event camera with a recurrent spiking net (surrogate gradients).
# python spike_gestures.py [STEPS]
import math
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
SIDE, T, BATCH, CLASSES = 12, 40, 32, 6
LAYERS = [2 * SIDE * SIDE, 128, 96, CLASSES]
EVENTS = 1500          # per recording
POOL = 512             # recordings
TAU_MEM, TAU_SYN, THRESH = 0.92, 0.8, 1.0
LR, WARMUP = 1e-3, 100


# ---- recordings: lists of (t, x, y, polarity), as the camera's driver hands them over ----

def make_recordings(seed=3):
    rng = np.random.default_rng(seed)
    recs, labels = [], rng.integers(0, CLASSES, POOL)
    for c in labels:
        t = np.sort(rng.uniform(0, 1, EVENTS))
        ang = 2 * np.pi * (c / CLASSES + (0.5 if c % 2 else -0.5) * t) + rng.normal(0, 0.25, EVENTS)
        r = 0.35 * SIDE * (0.6 + 0.4 * np.sin(2 * np.pi * t * (1 + c // 2)))
        x = np.clip(SIDE / 2 + r * np.cos(ang) + rng.normal(0, 0.7, EVENTS), 0, SIDE - 1)
        y = np.clip(SIDE / 2 + r * np.sin(ang) + rng.normal(0, 0.7, EVENTS), 0, SIDE - 1)
        p = rng.random(EVENTS) < 0.5 + 0.3 * np.cos(ang)
        recs.append(np.stack([t, x, y, p], 1).astype(np.float32))
    return recs, labels.astype(np.int32)


def bin_events(rec, shift):
    """Event list -> [T, 2*SIDE*SIDE] spike counts, shifted a little in space."""
    t = (rec[:, 0] * T).astype(np.int64).clip(0, T - 1)
    x = (rec[:, 1] + shift[0]).astype(np.int64) % SIDE
    y = (rec[:, 2] + shift[1]).astype(np.int64) % SIDE
    cell = ((t * 2 + rec[:, 3].astype(np.int64)) * SIDE + y) * SIDE + x
    return np.bincount(cell, minlength=T * 2 * SIDE * SIDE).reshape(T, -1)


def batches(recs, labels, seed=11):
    rng = np.random.default_rng(seed)
    while True:
        pick = rng.integers(0, POOL, BATCH)
        shift = rng.integers(-1, 2, (BATCH, 2))
        raster = np.empty((T, BATCH, LAYERS[0]), np.float32)
        for j, i in enumerate(pick):
            raster[:, j] = bin_events(recs[i], shift[j])
        yield np.minimum(raster, 1.0), labels[pick]


# ---- network: a list of layers, each a dict; the last one does not spike ----

@jax.custom_vjp
def spike(v):
    return (v > 0).astype(v.dtype)


spike.defvjp(lambda v: (spike(v), v), lambda v, g: (g / (1.0 + 5.0 * jnp.abs(v)) ** 2,))


def init(key):
    layers = []
    for n_in, n_out in zip(LAYERS[:-1], LAYERS[1:]):
        key, a, b = jax.random.split(key, 3)
        layer = {"w": jax.random.normal(a, (n_in, n_out)) * (2.0 / math.sqrt(n_in)), "b": jnp.zeros(n_out)}
        if n_out != CLASSES:
            layer["rec"] = jax.random.normal(b, (n_out, n_out)) * (0.3 / math.sqrt(n_out))
        layers.append(layer)
    return layers


def tick(layers, state, x):
    new, rates = [], []
    for layer, (syn, mem, out) in zip(layers, state):
        drive = x @ layer["w"] + layer["b"]
        if "rec" in layer:
            drive = drive + out @ layer["rec"]
        syn = TAU_SYN * syn + drive
        mem = TAU_MEM * mem + (1 - TAU_MEM) * syn
        if "rec" in layer:
            out = spike(mem - THRESH)
            mem = mem - jax.lax.stop_gradient(out) * THRESH
            rates.append(out.mean())
            x = out
        else:
            out = mem
        new.append((syn, mem, out))
    return new, (new[-1][2], jnp.stack(rates))


def forward(layers, raster):
    n = raster.shape[1]
    state = [tuple(jnp.zeros((n, width)) for _ in range(3)) for width in LAYERS[1:]]
    _, (volts, rates) = jax.lax.scan(lambda s, x: tick(layers, s, x), state, raster)
    return volts, rates


def objective(layers, raster, label):
    volts, rates = forward(layers, raster)
    logits = volts.max(0)
    nll = -jnp.take_along_axis(jax.nn.log_softmax(logits), label[:, None], 1).mean()
    acc = (logits.argmax(-1) == label).mean()
    return nll + 2.0 * jnp.square(rates.mean(0) - 0.08).sum(), (acc, rates.mean(0))


def train_step(layers, mom, raster, label, lr):
    (loss, aux), g = jax.value_and_grad(objective, has_aux=True)(layers, raster, label)
    mom = jax.tree.map(lambda m, d: {"m": 0.9 * m["m"] + 0.1 * d, "v": 0.99 * m["v"] + 0.01 * d * d},
                       mom, g, is_leaf=lambda z: isinstance(z, dict) and "m" in z)
    layers = jax.tree.map(lambda p, m: p - lr * m["m"] / (jnp.sqrt(m["v"]) + 1e-6), layers, mom)
    return layers, mom, loss, aux


update = jax.jit(train_step, donate_argnums=(0, 1))


def lr_at(i):
    """Linear warm-up, then a half cosine."""
    if i < WARMUP:
        return np.float32(LR * (i + 1) / WARMUP)
    return np.float32(LR * 0.5 * (1 + math.cos(math.pi * (i - WARMUP) / max(1, STEPS - WARMUP))))


def main():
    stream = batches(*make_recordings())
    layers = init(jax.random.key(0))
    mom = jax.tree.map(lambda p: {"m": jnp.zeros_like(p), "v": jnp.zeros_like(p)}, layers)
    start_at = STEPS // 4
    for i in range(STEPS):
        if i == start_at:
            jax.block_until_ready(layers)
            tic = time.perf_counter()
        raster, label = next(stream)
        layers, mom, loss, (acc, rates) = update(layers, mom, raster, label, lr_at(i))
        if i % 100 == 0:
            print(f"{i:6d}  loss {float(loss):.3f}  acc {float(acc):.2f}  rates {np.asarray(rates).round(3)}")
    jax.block_until_ready(layers)
    print(f"done {STEPS - start_at} steps in {time.perf_counter() - tic:.3f} s")


if __name__ == "__main__":
    main()
