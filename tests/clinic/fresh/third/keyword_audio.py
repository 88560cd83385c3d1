"""Keyword spotting: log-mel features on the host in a thread, flax linen model.

usage: python keyword_audio.py [STEPS]
"""
import functools
import queue
import sys
import threading
import time

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training import train_state

RATE = 8000
WIN, HOP, NFFT, MELS = 200, 160, 256, 40
MAX_FRAMES = 50
CLASSES = 10
BATCH = 32
WORKERS = 1
EVAL_EVERY = 10


def mel_matrix():
    def mel(f):
        return 2595.0 * np.log10(1.0 + f / 700.0)
    edges = 700.0 * (10 ** (np.linspace(mel(60.0), mel(RATE / 2), MELS + 2) / 2595.0) - 1.0)
    freqs = np.linspace(0, RATE / 2, NFFT // 2 + 1)
    up = (freqs[:, None] - edges[None, :-2]) / (edges[1:-1] - edges[:-2])
    down = (edges[None, 2:] - freqs[:, None]) / (edges[2:] - edges[1:-1])
    return np.maximum(0.0, np.minimum(up, down)).astype(np.float32)


MEL = mel_matrix()
WINDOW = np.hanning(WIN).astype(np.float32)


class ClipSet:
    """Chirps of ten classes, in noise, all kept in memory."""

    def __init__(self, n=512, seed=11):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, CLASSES, n).astype(np.int32)
        self.lengths = rng.integers(RATE // 2, RATE, n)
        t = np.arange(RATE) / RATE
        f0 = 200.0 + 150.0 * self.labels[:, None]
        wave = np.sin(2 * np.pi * (f0 * t + 0.5 * 300.0 * (self.labels[:, None] % 3) * t * t))
        wave = wave + 0.5 * rng.standard_normal(wave.shape)
        wave *= t * RATE < self.lengths[:, None]
        self.waves = wave.astype(np.float32)

    def take(self, rng):
        idx = rng.integers(0, len(self.labels), BATCH)
        return self.waves[idx], self.lengths[idx], self.labels[idx]


def log_mel(waves, lengths):
    frames = np.lib.stride_tricks.sliding_window_view(waves, WIN, axis=1)[:, ::HOP]
    power = np.abs(np.fft.rfft(frames * WINDOW, NFFT, axis=-1)) ** 2
    feats = np.log(power.astype(np.float32) @ MEL + 1e-3)
    n_frames = MAX_FRAMES
    out = np.zeros((len(waves), n_frames, MELS), np.float32)
    take = min(n_frames, feats.shape[1])
    out[:, :take] = feats[:, :take]
    return out


class Feeder:
    def __init__(self, clips):
        self.clips = clips
        self.ready = queue.Queue(maxsize=4)
        for w in range(WORKERS):
            threading.Thread(target=self.work, args=(w,), daemon=True).start()

    def work(self, seed):
        rng = np.random.default_rng(100 + seed)
        while True:
            waves, lengths, labels = self.clips.take(rng)
            item = (log_mel(waves, lengths), labels)
            self.ready.put(item)

    def __next__(self):
        return self.ready.get()


class SpotNet(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = (x - x.mean((1, 2), keepdims=True)) / (x.std((1, 2), keepdims=True) + 1e-5)
        x = nn.gelu(nn.Conv(64, (5,), name="stem")(x))
        for i in range(2):
            y = nn.LayerNorm()(x)
            y = nn.gelu(nn.Conv(96, (3,), name=f"conv{i}")(y))
            x = x + nn.Dense(64)(y)
        x = nn.RNN(nn.GRUCell(64))(x)
        return nn.Dense(CLASSES)(nn.tanh(nn.Dense(64)(x.mean(1))))


NET = SpotNet()


def make_tx(lr):
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(lr))


@functools.partial(jax.jit, donate_argnums=0)
def train_step(state, feats, labels):
    def loss_fn(params):
        logits = state.apply_fn({"params": params}, feats)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    return state.apply_gradients(grads=grads), loss


@jax.jit
def accuracy(params, feats, labels):
    logits = NET.apply({"params": params}, feats)
    return jnp.mean(jnp.argmax(logits, -1) == labels)


class Trainer:
    def __init__(self, steps):
        self.steps = steps
        self.feed = Feeder(ClipSet())
        self.held_out = next(self.feed)
        dummy = jnp.zeros((1, MAX_FRAMES, MELS))
        params = jax.jit(NET.init)(jax.random.key(0), dummy)["params"]
        self.state = train_state.TrainState.create(
            apply_fn=NET.apply, params=params, tx=make_tx(1e-3))

    def fit(self):
        for step in range(self.steps):
            if step == 3:
                jax.block_until_ready(self.state)
                t0 = time.perf_counter()
            feats, labels = next(self.feed)
            self.state, loss = train_step(self.state, feats, labels)
            if step % EVAL_EVERY == 0:
                acc = accuracy(self.state.params, *self.held_out)
            if step % 200 == 0:
                print(f"step {step} loss {float(loss):.4f} acc {float(acc):.3f}", flush=True)
        jax.block_until_ready(self.state)
        return time.perf_counter() - t0


if __name__ == "__main__":
    trainer = Trainer(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000)
    seconds = trainer.fit()
    print(f"done {trainer.steps - 3} steps in {seconds:.4f} s")
