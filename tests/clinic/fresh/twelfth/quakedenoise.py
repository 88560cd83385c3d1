"""Denoise three-component seismograms with a small U-Net (flax linen).

Clean events are mixed with recorded noise on the fly by background threads. Gradients of two batches
are put together (optax.MultiSteps), the weights are averaged (EMA), and each event keeps a running mean
of its estimates, towards which new estimates are drawn (temporal ensembling).
"""
import queue
import sys
import threading
import time
from typing import Any, NamedTuple, Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct
from scipy import signal

FS = 100.0                 # Hz
WINDOW = 1024              # samples of a training window
RECORD = 30000             # samples of a noise record, five minutes
N_EVENTS = 5120
N_HELD = 64
N_NOISE = 48
BATCH = 16
ACCUMULATE = 2
EMA = 0.995
RECALL = 0.8
LOG = 100
SOS = signal.butter(4, (1.0, 20.0), "bandpass", fs=FS, output="sos")


# ---------------------------------------------------------------- data

class Mixture(NamedTuple):
    noisy: np.ndarray      # (B, WINDOW, 3)
    clean: np.ndarray
    event: np.ndarray      # (B,) which event it is


def bandpass(record):
    return signal.sosfiltfilt(SOS, record, axis=0).astype(np.float32)


def synth_events(seed):
    """P and S arrivals with decaying codas, peak 1, bodies of random polarisation."""
    rng = np.random.default_rng(seed)
    t = np.arange(WINDOW, dtype=np.float32) / np.float32(FS)
    out = np.empty((N_EVENTS, WINDOW, 3), np.float32)

    def burst(onset, freq, decay):
        tau = np.maximum(t - onset, 0)
        return tau / decay * np.exp(-tau / decay) * np.sin(6.2832 * freq * tau)

    for lo in range(0, N_EVENTS, 256):
        def draw_col(a, b):
            return rng.uniform(a, b, (256, 1)).astype(np.float32)
        p = draw_col(1.0, 4.0)
        s = p + draw_col(0.8, 3.5)
        pol = rng.standard_normal((2, 256, 1, 3)).astype(np.float32)
        wave = (0.5 * burst(p, draw_col(4, 12), draw_col(0.2, 0.6))[..., None] * pol[0]
                + burst(s, draw_col(2, 7), draw_col(0.4, 1.2))[..., None] * pol[1])
        out[lo:lo + 256] = wave / np.abs(wave).max((1, 2), keepdims=True)
    return out


def synth_noise(rng):
    """Microseism-like coloured noise with a line or two of machinery in it."""
    freq = np.fft.rfftfreq(RECORD, 1 / FS)[:, None]
    colour = 1.0 / np.sqrt(0.2 + freq)
    for line in rng.uniform(3, 18, 2):
        colour = colour + 1.5 * np.exp(-0.5 * np.square((freq - line) / 0.3))
    record = np.fft.irfft(np.fft.rfft(rng.standard_normal((RECORD, 3)), axis=0) * colour, RECORD, axis=0)
    return (record / record.std()).astype(np.float32)


def noise_bank(seed):
    rng = np.random.default_rng(seed)
    return np.stack([bandpass(synth_noise(rng)) for _ in range(N_NOISE)])


def draw(rng, events, noise, size):
    event = rng.choice(len(events), size, replace=False)
    record = rng.integers(len(noise), size=size)
    start = rng.integers(RECORD - WINDOW, size=size)
    ground = np.stack([noise[r, s:s + WINDOW] for r, s in zip(record, start)])
    ground *= np.power(10.0, rng.uniform(-1.2, 0.0, (size, 1, 1))).astype(np.float32)
    clean = events[event]
    return Mixture(clean + ground, clean, event.astype(np.int32))


def mixtures(events, noise, seed, workers=2, depth=6):
    """Endless batches, mixed ahead of the training by background threads."""
    ready = queue.Queue(maxsize=depth)
    halt = threading.Event()

    def work(rng):
        while not halt.is_set():
            item = draw(rng, events, noise, BATCH)
            while not halt.is_set():
                try:
                    ready.put(item, timeout=0.2)
                    break
                except queue.Full:
                    continue

    for child in np.random.SeedSequence(seed).spawn(workers):
        threading.Thread(target=work, args=(np.random.default_rng(child),), daemon=True).start()
    try:
        while True:
            yield ready.get()
    finally:
        halt.set()


# ---------------------------------------------------------------- model

class ConvBlock(nn.Module):
    width: int
    stride: int = 1

    @nn.compact
    def __call__(self, x):
        x = nn.Conv(self.width, (3,), strides=(self.stride,), padding="SAME", use_bias=False)(x)
        return nn.silu(nn.GroupNorm(num_groups=8)(x))


class QuakeUNet(nn.Module):
    patch: int = 16
    widths: Sequence[int] = (32, 48, 64)

    @nn.compact
    def __call__(self, wave):
        b, t, c = wave.shape
        x = wave.reshape(b, t // self.patch, self.patch * c)
        skips = []
        for depth, width in enumerate(self.widths):
            x = ConvBlock(width, 1 if depth == 0 else 2)(x)
            skips.append(x)
        x = ConvBlock(self.widths[-1])(x)
        for skip in reversed(skips[:-1]):
            x = jnp.concatenate([jnp.repeat(x, 2, axis=1), skip], axis=-1)
            x = ConvBlock(skip.shape[-1])(x)
        return wave - nn.Dense(self.patch * c)(x).reshape(b, t, c)


# ---------------------------------------------------------------- training

@struct.dataclass
class Denoiser:
    params: Any
    ema: Any
    opt_state: Any
    recall: jax.Array      # (events, WINDOW, 3) running mean of each event's estimates
    seen: jax.Array        # (events,)


def make_step(model, tx):
    def step(state, batch):
        past = state.recall[batch.event]
        known = (state.seen[batch.event] > 0)[:, None, None]

        def objective(params):
            est = model.apply({"params": params}, batch.noisy)
            drift = jnp.where(known, jnp.square(est - past), 0.0)
            return jnp.abs(est - batch.clean).mean() + 0.1 * drift.mean(), est

        (loss, est), grads = jax.value_and_grad(objective, has_aux=True)(state.params)
        updates, opt_state = tx.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        fresh = tx.has_updated(opt_state)
        ema = jax.tree.map(lambda e, p: jnp.where(fresh, EMA * e + (1 - EMA) * p, e), state.ema, params)
        sound = jnp.isfinite(loss) & jnp.isfinite(optax.global_norm(grads))
        mean = jnp.where(known, RECALL * past + (1 - RECALL) * est, est)
        mean = jnp.where(sound, mean, past)
        state = Denoiser(params, ema, opt_state,
                         state.recall.at[batch.event].set(mean, unique_indices=True),
                         state.seen.at[batch.event].add(1.0))
        return state, (loss, est)
    return jax.jit(step, donate_argnums=0)


def make_score(model):
    @jax.jit
    def score(params, noisy, clean):
        """Gain of signal-to-noise ratio in dB."""
        est = model.apply({"params": params}, noisy)
        before = jnp.square(noisy - clean).sum((1, 2))
        after = jnp.square(est - clean).sum((1, 2))
        return (10 * jnp.log10(before / (after + 1e-9))).mean()
    return score


class ArrivalMonitor:
    """What the seismologist looks at: correlation, lag and coherence of the denoised traces."""

    def __init__(self):
        self.rows = []

    def update(self, est, batch):
        for e, c in zip(est, batch.clean):
            f, coh = signal.coherence(e, c, fs=FS, nperseg=256, axis=0)
            lags, corr = [], []
            for k in range(3):
                xc = np.correlate(e[:, k], c[:, k], "full")
                lags.append(abs(int(xc.argmax()) - (WINDOW - 1)) / FS)
                corr.append(xc.max() / (np.linalg.norm(e[:, k]) * np.linalg.norm(c[:, k]) + 1e-9))
            self.rows.append((np.mean(corr), np.median(lags), np.nanmean(coh[(f > 1) & (f < 20)])))

    def report(self):
        corr, lag, coh = np.mean(self.rows, axis=0)
        self.rows.clear()
        return f"corr {corr:.3f}  lag {lag:.3f} s  coherence {coh:.3f}"


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
    skip = steps // 4
    noise = noise_bank(7)
    events = synth_events(5)
    held, events = events[:N_HELD], events[N_HELD:]
    exam = draw(np.random.default_rng(1), held, noise, N_HELD)

    model = QuakeUNet()
    warmup = min(100, steps // 20 + 1)
    rate = optax.warmup_cosine_decay_schedule(0.0, 2e-3, warmup, max(steps // ACCUMULATE, warmup + 1), 2e-5)
    tx = optax.MultiSteps(optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(rate, weight_decay=1e-4)),
                          every_k_schedule=ACCUMULATE)
    params = jax.jit(model.init)(jax.random.key(0), jnp.zeros((1, WINDOW, 3)))["params"]
    state = Denoiser(params, jax.tree.map(jnp.copy, params), tx.init(params),
                     jnp.zeros((len(events), WINDOW, 3)), jnp.zeros((len(events),)))
    step, score = make_step(model, tx), make_score(model)
    monitor = ArrivalMonitor()
    stream = mixtures(events, noise, seed=2)
    print(f"untrained: gain {float(score(state.ema, exam.noisy, exam.clean)):.2f} dB", flush=True)

    began = time.perf_counter()
    for k in range(steps):
        if k == skip:
            jax.block_until_ready(state)
            began = time.perf_counter()
        batch = next(stream)
        state, (loss, est) = step(state, batch)
        if k % LOG == 0:
            monitor.update(np.asarray(est), batch)
            print(f"step {k:5d}  loss {float(loss):.4f}  {monitor.report()}", flush=True)
        if k % 500 == 499:
            print(f"step {k:5d}  gain {float(score(state.ema, exam.noisy, exam.clean)):.2f} dB", flush=True)
    jax.block_until_ready(state)
    spent = time.perf_counter() - began
    stream.close()
    print(f"done {steps - skip} steps in {spent:.3f} s", flush=True)


if __name__ == "__main__":
    main()
