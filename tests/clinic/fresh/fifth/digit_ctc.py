"""Spoken digit strings -> CTC, conv + GRU acoustic model in haiku."""
import os
import queue
import sys
import threading
import time
from functools import partial

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax

RATE, HOP, WIN, MELS = 8000, 80, 200, 40
FRAMES, LABELS, VOCAB = 160, 10, 12
BATCH, UNITS = 32, 160
SAMPLES = (FRAMES - 1) * HOP + WIN


def synth(n, seed=5):
    rng = np.random.default_rng(seed)
    labels = rng.integers(1, VOCAB, (n, LABELS)).astype(np.int32)
    n_lab = rng.integers(5, LABELS + 1, n)
    n_frm = np.clip(n_lab * 15 + rng.integers(-8, 10, n), 60, FRAMES)
    t = np.arange(SAMPLES) / RATE
    waves = np.zeros((n, SAMPLES), np.float32)
    for i in range(n):
        live = n_frm[i] * HOP
        slot = np.minimum(np.arange(live) * n_lab[i] // live, n_lab[i] - 1)
        f0 = 200.0 + 230.0 * labels[i, slot]
        waves[i, :live] = np.sin(6.2832 * f0 * t[:live])
    waves += 0.1 * rng.standard_normal(waves.shape, dtype=np.float32)
    return waves, n_frm, labels, n_lab


def mel_bank():
    edges = np.linspace(0, WIN // 2, MELS + 2)
    k = np.arange(WIN // 2 + 1)[:, None]
    rise = (k - edges[:-2]) / (edges[1:-1] - edges[:-2])
    fall = (edges[2:] - k) / (edges[2:] - edges[1:-1])
    return np.maximum(0, np.minimum(rise, fall)).astype(np.float32)


BANK, HANN = mel_bank(), np.hanning(WIN).astype(np.float32)


def log_mel(wave):
    cut = np.lib.stride_tricks.sliding_window_view(wave, WIN)[::HOP] * HANN
    return np.log(np.abs(np.fft.rfft(cut)) @ BANK + 1e-3).astype(np.float32)


class Corpus:
    def __init__(self, n=600):
        self.waves, self.n_frm, self.labels, self.n_lab = synth(n)
        self.mels = np.stack([log_mel(w) for w in self.waves])

    def features(self, i, rng):
        return self.mels[i].copy()

    def minibatch(self, rng):
        idx = rng.integers(0, len(self.waves), BATCH)
        x = np.stack([self.features(i, rng) for i in idx])
        for row in x:                                   # SpecAugment, lightly
            f, s = rng.integers(0, MELS - 6), rng.integers(0, FRAMES - 15)
            row[:, f : f + 6] = 0.0
            row[s : s + 15] = 0.0
        x_pad = (np.arange(FRAMES)[None] >= self.n_frm[idx, None]).astype(np.float32)
        y_pad = (np.arange(LABELS)[None] >= self.n_lab[idx, None]).astype(np.float32)
        return x, x_pad[:, ::2], self.labels[idx], y_pad


def feeder(corpus, out, owner):
    rng = np.random.default_rng(77)
    while os.getpid() == owner or os.getppid() == owner:
        item = corpus.minibatch(rng)
        out.put(item)


def acoustic(x):
    h = jax.nn.relu(hk.Conv1D(96, 5, stride=2)(x))
    h = jax.nn.relu(hk.Conv1D(UNITS, 5)(h))
    cell = hk.GRU(UNITS)
    h, _ = hk.dynamic_unroll(cell, jnp.swapaxes(h, 0, 1), cell.initial_state(x.shape[0]))
    return hk.Linear(VOCAB)(jnp.swapaxes(h, 0, 1))


net = hk.without_apply_rng(hk.transform(acoustic))
opt = optax.chain(optax.clip_by_global_norm(5.0), optax.adamw(8e-4, weight_decay=1e-4))


def ctc(params, x, x_pad, y, y_pad):
    per_seq = optax.ctc_loss(net.apply(params, x), x_pad, y, y_pad)
    return jnp.mean(per_seq / jnp.sum(1.0 - y_pad, axis=1))


@partial(jax.jit, donate_argnums=(0,))
def fit_step(ts, batch):
    params, opt_state, avg = ts
    loss, grads = jax.value_and_grad(ctc)(params, *batch)
    updates, opt_state = opt.update(grads, opt_state, params)
    params = optax.apply_updates(params, updates)
    avg = optax.incremental_update(params, avg, 0.005)
    return (params, opt_state, avg), loss


evaluate = jax.jit(ctc)


def run(steps):
    corpus = Corpus()
    held_out = corpus.minibatch(np.random.default_rng(1))
    q = queue.Queue(6)
    threading.Thread(target=feeder, args=(corpus, q, os.getpid()), daemon=True).start()
    params = net.init(jax.random.key(0), held_out[0])
    ts = (params, opt.init(params), jax.tree.map(jnp.copy, params))
    for _ in range(4):
        ts, loss = fit_step(ts, q.get())
    evaluate(ts[2], *held_out).block_until_ready()
    jax.block_until_ready(ts)

    t0 = time.perf_counter()
    for k in range(1, steps + 1):
        ts, loss = fit_step(ts, q.get())
        if k % 400 == 0:
            dev = evaluate(ts[2], *held_out)
            print(f"{k}: train {float(loss):.3f}  held-out (avg) {float(dev):.3f}", flush=True)
    jax.block_until_ready(ts)
    print(f"done {steps} steps in {time.perf_counter() - t0:.4f} s")


if __name__ == "__main__":
    run(int(sys.argv[1]) if len(sys.argv) > 1 else 6000)
