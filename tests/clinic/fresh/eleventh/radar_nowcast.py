"""Precipitation nowcasting on a small radar composite: ConvGRU encoder / forecaster (equinox).

    python radar_nowcast.py [STEPS]
"""
import queue
import sys
import threading
import time
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

@dataclass(frozen=True)
class Config:
    steps: int = 1600
    batch: int = 6
    patch: int = 24
    n_in: int = 4
    n_out: int = 4
    hidden: int = 10
    archive_len: int = 400
    archive_size: int = 128
    lr: float = 2e-3
    prefetch: int = 3
    log_every: int = 50
    seed: int = 7

def synth_archive(cfg: Config) -> np.ndarray:
    """Advect a few hundred convective cells over a domain; reflectivity in units of 10 dBZ."""
    rng = np.random.default_rng(cfg.seed)
    n, s = cfg.archive_len, cfg.archive_size
    spectrum = np.fft.rfft2(rng.standard_normal((s, s)))
    ky = np.fft.fftfreq(s)[:, None]
    kx = np.fft.rfftfreq(s)[None, :]
    k = np.sqrt(ky**2 + kx**2)
    spectrum = spectrum / (k + 0.02) ** 1.7
    out = np.empty((n, s, s), np.float32)
    phase = rng.uniform(0, 2 * np.pi, spectrum.shape)
    for t in range(n):
        drift = np.exp(-2j * np.pi * (ky * 1.3 * t + kx * 0.7 * t))
        growth = np.exp(1j * 0.03 * t * np.sin(phase))
        f = np.fft.irfft2(spectrum * drift * growth, s=(s, s))
        f = (f - f.mean()) / f.std()
        out[t] = np.clip(f - 0.3, 0.0, 4.0)
    return out

class PatchSource(threading.Thread):
    """Cuts random space-time patches out of the archive in the background."""

    def __init__(self, archive, cfg):
        super().__init__(daemon=True)
        self.archive, self.cfg = archive, cfg
        self.rng = np.random.default_rng(cfg.seed + 1)
        self.q = queue.Queue(cfg.prefetch)
        self.stopped = threading.Event()

    def locate(self):
        c = self.cfg
        t = self.rng.integers(0, c.archive_len - c.n_in - c.n_out)
        y, x = self.rng.integers(0, c.archive_size - c.patch, 2)
        return t, y, x

    def batch(self):
        c = self.cfg
        length = c.n_in + c.n_out
        out = np.empty((c.batch, length, 1, c.patch, c.patch), np.float32)
        for i in range(c.batch):
            t, y, x = self.locate()
            out[i, :, 0] = self.archive[t : t + length, y : y + c.patch, x : x + c.patch]
        return out

    def run(self):
        while not self.stopped.is_set():
            b = self.batch()
            while not self.stopped.is_set():
                try:
                    self.q.put(b, timeout=0.2)
                    break
                except queue.Full:
                    pass

    def __next__(self):
        return self.q.get()

class ConvGRU(eqx.Module):
    gates: eqx.nn.Conv2d
    cand: eqx.nn.Conv2d

    def __init__(self, cin, hidden, key):
        k1, k2 = jax.random.split(key)
        self.gates = eqx.nn.Conv2d(cin + hidden, 2 * hidden, 3, padding=1, key=k1)
        self.cand = eqx.nn.Conv2d(cin + hidden, hidden, 3, padding=1, key=k2)

    def __call__(self, h, x):
        r, z = jnp.split(jax.nn.sigmoid(self.gates(jnp.concatenate([x, h]))), 2)
        c = jnp.tanh(self.cand(jnp.concatenate([x, r * h])))
        return (1 - z) * h + z * c

class Nowcaster(eqx.Module):
    enc: ConvGRU
    dec: ConvGRU
    head: eqx.nn.Conv2d
    hidden: int = eqx.field(static=True)

    def __init__(self, hidden, key):
        k = jax.random.split(key, 3)
        self.enc = ConvGRU(1, hidden, k[0])
        self.dec = ConvGRU(1, hidden, k[1])
        self.head = eqx.nn.Conv2d(hidden, 1, 1, key=k[2])
        self.hidden = hidden

    def __call__(self, past, future, tf_rate, key):
        h = jnp.zeros((self.hidden,) + past.shape[-2:], past.dtype)
        h, _ = jax.lax.scan(lambda h, x: (self.enc(h, x), None), h, past, unroll=True)

        def roll(carry, inp):
            h, prev = carry
            truth, use_truth = inp
            h = self.dec(h, prev)
            pred = prev + self.head(h)
            return (h, jnp.where(use_truth, truth, pred)), pred

        use = jax.random.bernoulli(key, tf_rate, (future.shape[0],))
        _, preds = jax.lax.scan(roll, (h, past[-1]), (future, use), unroll=True)
        return preds

def rain_weighted_loss(model, frames, tf_rate, key, n_in):
    past, future = frames[:, :n_in], frames[:, n_in:]
    keys = jax.random.split(key, frames.shape[0])
    pred = jax.vmap(model, in_axes=(0, 0, None, 0))(past, future, tf_rate, keys)
    weight = 1.0 + 2.0 * jnp.clip(future, 0.0, 2.0)
    return jnp.mean(weight * jnp.abs(pred - future))

def main():
    cfg = Config(steps=int(sys.argv[1])) if len(sys.argv) > 1 else Config()
    source = PatchSource(synth_archive(cfg), cfg)
    source.start()

    key = jax.random.key(cfg.seed)
    model = Nowcaster(cfg.hidden, key)
    tx = optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adam(optax.cosine_decay_schedule(cfg.lr, cfg.steps)),
    )
    opt_state = tx.init(eqx.filter(model, eqx.is_inexact_array))

    @eqx.filter_jit(donate="all-except-first")
    def train_step(frames, model, opt_state, tf_rate, key):
        key, sub = jax.random.split(key)
        loss, grads = eqx.filter_value_and_grad(rain_weighted_loss)(
            model, frames, tf_rate, sub, cfg.n_in
        )
        updates, opt_state = tx.update(grads, opt_state)
        return eqx.apply_updates(model, updates), opt_state, key, loss

    warm = cfg.steps // 4
    t0 = time.perf_counter()
    for step in range(cfg.steps):
        if step == warm:
            jax.block_until_ready(model)
            t0 = time.perf_counter()
        tf_rate = np.float32(max(0.0, 1.0 - step / (0.6 * cfg.steps)))
        frames = next(source)
        model, opt_state, key, loss = train_step(frames, model, opt_state, tf_rate, key)
        if step % cfg.log_every == 0:
            print(f"step {step:5d}  weighted MAE {float(loss):.4f}", flush=True)
    jax.block_until_ready(model)
    elapsed = time.perf_counter() - t0
    source.stopped.set()
    print(f"done {cfg.steps - warm} steps in {elapsed:.3f} s")

if __name__ == "__main__":
    main()
