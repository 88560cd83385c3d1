"""Denoising autoencoder for patches of audio log spectrograms, flax.nnx.

Synthetic clips (tones, chirps, clicks) become log spectrograms once; a generator
pipeline cuts patches out of them and a worker thread keeps a few batches ahead.
Usage: python spec_dae.py [STEPS]
"""
import queue
import sys
import tempfile
import threading
import time
from collections import deque
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from scipy.signal import stft

RATE = 8000
BANDS, FRAMES = 64, 16
BATCH = 128


def synth_clip(rng, seconds=2.0):
    t = np.arange(int(RATE * seconds)) / RATE
    wave = np.zeros_like(t)
    for _ in range(rng.integers(2, 5)):
        f0, sweep = rng.uniform(120, 1800), rng.normal(0, 200)
        env = np.exp(-((t - rng.uniform(0, seconds)) / rng.uniform(0.1, 0.8)) ** 2)
        for k in range(1, 4):
            wave += env * np.sin(2 * np.pi * k * (f0 * t + 0.5 * sweep * t ** 2)) / k
    wave[rng.integers(0, len(t), 4)] += 3.0
    return wave + rng.normal(0, 0.01, len(t))


def log_spectrogram(wave):
    _, _, z = stft(wave, RATE, nperseg=2 * BANDS, noverlap=BANDS)
    return np.log1p(10 * np.abs(z[:BANDS])).astype(np.float32)


class Library:
    """All clips of a recording session, transformed once."""

    def __init__(self, clips, seed):
        rng = np.random.default_rng(seed)
        self.waves = [synth_clip(rng) for _ in range(clips)]
        self.spec = np.stack([log_spectrogram(w) for w in self.waves])
        self.mean, self.std = self.spec.mean(), self.spec.std()
        self.spec = (self.spec - self.mean) / self.std
        self.rng = rng

    def patch_batch(self, n=BATCH):
        clip = self.rng.integers(0, len(self.spec), n)
        at = self.rng.integers(0, self.spec.shape[2] - FRAMES, n)
        cols = at[:, None] + np.arange(FRAMES)
        patches = self.spec[clip[:, None], :, cols]
        return patches.reshape(n, FRAMES * BANDS)


def ahead(library, depth=4):
    """Cut patches in a thread; the consumer finds `depth` batches waiting."""
    box = queue.Queue(maxsize=depth)

    def work():
        while True:
            box.put(library.patch_batch())

    threading.Thread(target=work, daemon=True).start()
    while True:
        yield box.get()


class Layer(nnx.Module):
    def __init__(self, n_in, n_out, rngs):
        self.lin = nnx.Linear(n_in, n_out, rngs=rngs)
        self.norm = nnx.LayerNorm(n_out, rngs=rngs)

    def __call__(self, x):
        return nnx.silu(self.norm(self.lin(x)))


class Denoiser(nnx.Module):
    def __init__(self, rngs, size=FRAMES * BANDS, hidden=384, code=96):
        self.enc1 = Layer(size, hidden, rngs)
        self.enc2 = Layer(hidden, hidden, rngs)
        self.code = nnx.Linear(hidden, code, rngs=rngs)
        self.dec1 = Layer(code, hidden, rngs)
        self.dec2 = Layer(hidden, hidden, rngs)
        self.out = nnx.Linear(hidden, size, rngs=rngs)

    def __call__(self, x):
        z = self.code(self.enc2(self.enc1(x)))
        return self.out(self.dec2(self.dec1(z)))


def corrupt(key, clean):
    k_noise, k_drop = jax.random.split(key)
    noisy = clean + 0.3 * jax.random.normal(k_noise, clean.shape, clean.dtype)
    keep = jax.random.bernoulli(k_drop, 0.8, (clean.shape[0], FRAMES, 1))
    return noisy * jnp.repeat(keep, BANDS, axis=2).reshape(clean.shape)


@nnx.jit(donate_argnums=(0, 1))
def train_step(model, optimizer, clean, key):
    def loss_fn(net):
        k = jax.random.fold_in(key, optimizer.step[...])
        return jnp.mean((net(corrupt(k, clean)) - clean) ** 2)

    loss, grads = nnx.value_and_grad(loss_fn)(model)
    optimizer.update(model, grads)
    return loss


@nnx.jit
def quality(model, clean, key):
    """Gain in signal to noise ratio, in dB, and spectral convergence."""
    noisy = corrupt(key, clean)
    restored = model(noisy)
    before, after = jnp.sum((noisy - clean) ** 2), jnp.sum((restored - clean) ** 2)
    return 10 * jnp.log10(before / after), jnp.sqrt(after) / jnp.linalg.norm(clean)


class History:
    """Losses stay on the device; their mean is read when a report is due."""

    def __init__(self, length=100):
        self.recent = deque(maxlen=length)

    def push(self, loss):
        self.recent.append(loss)

    def mean(self):
        return float(np.mean(jax.device_get(list(self.recent))))


def run(steps):
    train, test = Library(240, seed=1), Library(12, seed=2)
    probe = test.patch_batch(256)
    model = Denoiser(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adamw(1e-3), wrt=nnx.Param)
    history = History()
    folder = Path(tempfile.mkdtemp(prefix="spec_dae_"))
    batches = ahead(train)
    root = jax.random.key(9)
    warm = min(8, steps // 4)
    began = time.perf_counter()
    for step in range(steps):
        if step == warm:
            jax.block_until_ready(nnx.state(model))
            began = time.perf_counter()
        loss = train_step(model, optimizer, next(batches), root)
        history.push(loss)
        if step % 100 == 99:
            print(f"step {step + 1} loss {history.mean():.4f}")
        if step % 400 == 399:
            gain, conv = quality(model, probe, root)
            print(f"step {step + 1} gain {float(gain):.2f} dB convergence {float(conv):.3f}")
        if step % 2000 == 1999:
            leaves = jax.tree.leaves(jax.device_get(nnx.state(model, nnx.Param)))
            np.savez(folder / "denoiser.npz", *leaves)
    jax.block_until_ready(nnx.state(model))
    return steps - warm, time.perf_counter() - began


if __name__ == "__main__":
    done, seconds = run(int(sys.argv[1]) if len(sys.argv) > 1 else 12_000)
    print(f"done {done} steps in {seconds:.3f} s")
