"""Beat-rhythm classifier on synthetic single-lead ECG strips (flax.linen)."""
import queue
import sys
import threading
import time
from collections import deque
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct
from flax.training import train_state

jax.config.update("jax_default_prng_impl", "rbg")
FS = 125
STRIP = 512
RHYTHMS = ("sinus", "afib", "pvc", "brady", "tachy")


def synth_strip(rng, label):
    """A strip of Gaussian bumps whose intervals depend on the rhythm."""
    t = np.arange(STRIP) / FS
    rate = {"sinus": 75, "afib": 95, "pvc": 78, "brady": 45, "tachy": 140}[RHYTHMS[label]]
    x, at = np.zeros(STRIP), rng.uniform(0, 0.5)
    while at < t[-1]:
        wide = 0.012
        if label == 2 and rng.random() < 0.3:
            wide, at = 0.04, at - 0.15
        x += np.exp(-0.5 * ((t - at) / wide) ** 2)
        x += 0.25 * np.exp(-0.5 * ((t - at - 0.25) / 0.04) ** 2)
        if label != 1:
            x += 0.12 * np.exp(-0.5 * ((t - at + 0.16) / 0.02) ** 2)
        jitter = 0.22 if label == 1 else 0.03
        at += 60 / rate * max(0.4, 1 + jitter * rng.standard_normal())
    return x


class Holter:
    """All recordings of the study, in memory, with cheap per-batch augmentation."""

    def __init__(self, n=3000, seed=0):
        rng = np.random.default_rng(seed)
        self.y = rng.integers(0, len(RHYTHMS), n).astype(np.int32)
        strips = np.stack([synth_strip(rng, c) for c in self.y])
        wander = 0.3 * np.sin(2 * np.pi * 0.3 * np.arange(STRIP) / FS + rng.uniform(0, 6, (n, 1)))
        noisy = strips + wander + 0.05 * rng.standard_normal(strips.shape)
        self.x = self.clean(noisy).astype(np.float32)

    @staticmethod
    def clean(x):
        x = x - np.median(x, axis=-1, keepdims=True)
        return x / (x.std(axis=-1, keepdims=True) + 1e-6)

    def fetch(self, rng, size):
        pick = rng.integers(0, len(self.y), size)
        x = self.x[pick] * rng.uniform(0.8, 1.2, (size, 1)).astype(np.float32)
        return {"x": x[..., None], "y": self.y[pick]}


class Feeder(threading.Thread):
    def __init__(self, data, size, depth=4, seed=1):
        super().__init__(daemon=True)
        self.data, self.size = data, size
        self.rng = np.random.default_rng(seed)
        self.out = queue.Queue(depth)
        self.start()

    def run(self):
        while True:
            self.out.put(self.data.fetch(self.rng, self.size))

    def __next__(self):
        return self.out.get()


class Block(nn.Module):
    ch: int
    stride: int = 1

    @nn.compact
    def __call__(self, x):
        h = nn.LayerNorm()(x)
        h = nn.Conv(self.ch, (7,), strides=(self.stride,))(nn.relu(h))
        h = nn.Conv(self.ch, (7,))(nn.relu(nn.LayerNorm()(h)))
        if x.shape != h.shape:
            x = nn.Conv(self.ch, (1,), strides=(self.stride,))(x)
        return x + h


class RhythmNet(nn.Module):
    widths: tuple = (16, 24, 32)

    @nn.compact
    def __call__(self, x):
        x = nn.Conv(self.widths[0], (15,), strides=(4,))(x)
        for ch in self.widths:
            x = Block(ch, 2)(x)
        return nn.Dense(len(RHYTHMS))(nn.relu(x).mean(axis=1))


class State(train_state.TrainState):
    ema: Any = struct.field(pytree_node=True)


def objective(apply_fn, params, batch):
    logits = apply_fn({"params": params}, batch["x"])
    hard = jax.nn.one_hot(batch["y"], len(RHYTHMS))
    loss = optax.softmax_cross_entropy(logits, 0.95 * hard + 0.01).mean()
    return loss, {"loss": loss, "acc": (logits.argmax(-1) == batch["y"]).mean(), "probs": jax.nn.softmax(logits)}


@partial(jax.jit, donate_argnums=0)
def train_step(state, batch):
    grad_fn = jax.value_and_grad(partial(objective, state.apply_fn), has_aux=True)
    (_, metrics), grads = grad_fn(state.params, batch)
    state = state.apply_gradients(grads=grads)
    ema = jax.tree.map(lambda e, p: 0.995 * e + 0.005 * p, state.ema, state.params)
    return state.replace(ema=ema), metrics


def main(steps=5500, warm=5, batch=32):
    data = Holter()
    feed = Feeder(data, batch)
    net = RhythmNet()
    params = jax.jit(net.init)(jax.random.PRNGKey(0), jnp.zeros((1, STRIP, 1)))["params"]
    tx = optax.adamw(optax.warmup_cosine_decay_schedule(0, 2e-3, 100, 5000), weight_decay=1e-4)
    state = State.create(apply_fn=net.apply, params=params, tx=tx, ema=jax.tree.map(jnp.copy, params))
    recent = deque(maxlen=8)
    start = None
    for i in range(-warm, steps):
        if i == 0:
            jax.block_until_ready(state)
            start = time.perf_counter()
        strips = next(feed)
        state, metrics = train_step(state, strips)
        recent.append(metrics)
        if i % 50 == 0 and i > 0:
            got = jax.device_get([{k: m[k] for k in ("loss", "acc")} for m in recent])
            print(i, " ".join(f"{k} {np.mean([m[k] for m in got]):.4f}" for k in ("loss", "acc")), flush=True)
    jax.block_until_ready(state)
    print(f"done {steps} steps in {time.perf_counter() - start:.3f} s")


if __name__ == "__main__":
    main(*(int(a) for a in sys.argv[1:2]))
