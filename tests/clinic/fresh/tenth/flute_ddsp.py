"""Harmonic-plus-noise resynthesis of flute notes (DDSP style), haiku version.

A small network reads pitch and loudness curves and steers an additive
synthesiser; training compares spectrograms at three resolutions.
"""
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import queue
import sys
import threading
import time
from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax

RATE = 8000
FRAMES = 64
HOP = 64
SAMPLES = FRAMES * HOP
HARMONICS = 16
BATCH = 8
WARM = 5
SCALES = (512, 256, 128)


class Clip(NamedTuple):
    pitch: np.ndarray       # (B, FRAMES) Hz
    loud: np.ndarray        # (B, FRAMES) dB-ish
    audio: np.ndarray       # (B, SAMPLES)


# --------------------------------------------------------------- the "record"
class NoteBank:
    """A few hundred synthetic notes, rendered before training."""

    def __init__(self, count=300, seed=0):
        rng = np.random.default_rng(seed)
        t = np.arange(2 * SAMPLES) / RATE
        self.pitch, self.audio = [], []
        for _ in range(count):
            f0 = 220.0 * 2 ** (rng.integers(0, 24) / 12)
            vib = 1 + 0.006 * np.sin(2 * np.pi * rng.uniform(4, 6) * t + rng.uniform(0, 6))
            phase = 2 * np.pi * np.cumsum(f0 * vib) / RATE
            tone = sum(rng.uniform(0.5, 1) / h ** 1.6 * np.sin(h * phase)
                       for h in range(1, 9) if h * f0 < RATE / 2)
            breath = 0.02 * rng.standard_normal(t.size)
            env = np.minimum(1, t / 0.05) * np.exp(-t * rng.uniform(0.2, 1.5))
            self.audio.append(((tone + breath) * env * 0.3).astype(np.float32))
            self.pitch.append((f0 * vib)[::HOP].astype(np.float32))

    def __len__(self):
        return len(self.audio)


class Loader(threading.Thread):
    def __init__(self, bank, seed=1, depth=4):
        super().__init__(daemon=True)
        self.bank, self.rng = bank, np.random.default_rng(seed)
        self.out = queue.Queue(depth)

    def crop(self):
        i = self.rng.integers(len(self.bank))
        start = int(self.rng.integers(0, FRAMES))
        audio = self.bank.audio[i][start * HOP:start * HOP + SAMPLES]
        pitch = self.bank.pitch[i][start:start + FRAMES]
        audio = audio * np.float32(self.rng.uniform(0.5, 1.2))
        return pitch, audio

    def run(self):
        while True:
            pitch, audio = zip(*(self.crop() for _ in range(BATCH)))
            audio = np.stack(audio)
            power = np.square(audio.reshape(BATCH, FRAMES, HOP)).mean(-1)
            self.out.put(Clip(np.stack(pitch), np.log(power + 1e-5), audio))

    def __iter__(self):
        while True:
            yield self.out.get()


# -------------------------------------------------------------------- network
def controls(pitch, loud):
    x = jnp.stack([jnp.log2(pitch / 220.0), loud / 5.0], axis=-1)
    h = hk.Linear(96)(x)
    for dilation in (1, 2, 4):
        r = hk.Conv1D(96, 3, rate=dilation)(jax.nn.silu(hk.LayerNorm(-1, True, True)(h)))
        h = h + r
    out = hk.Linear(HARMONICS + 2)(jax.nn.silu(h))
    return jax.nn.softplus(out[..., :1] - 2), jax.nn.softmax(out[..., 1:-1]), jax.nn.softplus(out[..., -1:] - 5)


def synth(pitch, gain, harm, noise, key):
    up = lambda c: jnp.repeat(c, HOP, axis=1)
    phase = 2 * jnp.pi * jnp.cumsum(up(pitch[..., None])[..., 0] / RATE, axis=1)
    number = jnp.arange(1, HARMONICS + 1, dtype=jnp.float32)
    audible = (up(pitch[..., None]) * number) < RATE / 2
    waves = jnp.sin(jnp.mod(phase[..., None] * number, 2 * jnp.pi)) * audible
    tone = jnp.sum(waves * up(gain * harm), axis=-1)
    return tone + up(noise)[..., 0] * jax.random.normal(key, tone.shape)


def spectrum(x, size):
    hop = size // 2
    starts = np.arange(0, SAMPLES - size + 1, hop)
    frames = x[:, starts[:, None] + np.arange(size)]
    window = np.hanning(size)
    return jnp.abs(jnp.fft.rfft(frames * jnp.asarray(window, x.dtype)) + 1e-6)


net = hk.without_apply_rng(hk.transform(controls))


def loss_fn(params, clip, key):
    made = synth(clip.pitch, *net.apply(params, clip.pitch, clip.loud), key)
    total = 0.0
    for size in SCALES:
        a, b = spectrum(clip.audio, size), spectrum(made, size)
        total += jnp.mean(jnp.abs(a - b)) + 0.2 * jnp.mean(jnp.abs(jnp.log(a) - jnp.log(b)))
    return total


class State(NamedTuple):
    params: hk.Params
    average: hk.Params
    opt: optax.OptState
    key: jax.Array


def make_step(tx):
    def step(state, clip):
        key, sub = jax.random.split(state.key)
        loss, grads = jax.value_and_grad(loss_fn)(state.params, clip, sub)
        updates, opt = tx.update(grads, state.opt)
        params = optax.apply_updates(state.params, updates)
        average = optax.incremental_update(params, state.average, 0.01)
        return State(params, average, opt, key), loss
    return jax.jit(step, donate_argnums=0)


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 2500
    loader = Loader(NoteBank())
    loader.start()
    feed = iter(loader)
    clip = next(feed)
    params = net.init(jax.random.PRNGKey(0), clip.pitch, clip.loud)
    tx = optax.adam(optax.exponential_decay(2e-3, 1000, 0.8))
    state = State(params, jax.tree.map(jnp.copy, params), tx.init(params), jax.random.PRNGKey(1))
    step = make_step(tx)
    for _ in range(WARM):
        state, loss = step(state, next(feed))
    jax.block_until_ready(state)
    t0 = time.perf_counter()
    for i in range(1, steps + 1):
        state, loss = step(state, next(feed))
        if i % 50 == 0:
            print(f"{i:5d} spectral loss {float(loss):.4f}")
    jax.block_until_ready(state)
    print(f"done {steps} steps in {time.perf_counter() - t0:.3f} s")


if __name__ == "__main__":
    main()
