#!/usr/bin/env python
# Blind deconvolution of seismic traces: noisy recorded trace -> reflectivity.
# Equinox model, prefetching thread, cosine schedule.
import queue
import sys
import threading
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax


class Settings:
    n_traces = 40000
    trace_len = 512
    width = 48
    depth = 3
    batch = 32
    peak_lr = 2e-3
    queue_size = 4
    warmup = 4
    default_steps = 5000


def ricker(freq, n=65, dt=0.004):
    t = (np.arange(n) - n // 2) * dt
    a = (np.pi * freq * t) ** 2
    return ((1 - 2 * a) * np.exp(-a)).astype(np.float32)


class Survey:
    """Reflectivity bank and the recorded traces (made once, by FFT)."""

    def __init__(self, cfg, seed=7):
        rng = np.random.default_rng(seed)
        n, t = cfg.n_traces, cfg.trace_len
        refl = np.zeros((n, t), np.float32)
        rows = np.repeat(np.arange(n), 20)
        refl[rows, rng.integers(0, t, rows.size)] = rng.standard_normal(rows.size, np.float32)
        self.refl = refl
        self.wavelets = np.stack([ricker(f) for f in np.linspace(15, 45, 16)])
        nfft = t + 64
        self.recorded = np.empty_like(refl)
        for k in range(16):
            spec = np.fft.rfft(self.wavelets[k], nfft).astype(np.complex64)
            part = np.fft.irfft(np.fft.rfft(refl[k::16], nfft) * spec, nfft)
            self.recorded[k::16] = part[:, 32:32 + t]
        self.recorded += 0.05 * rng.standard_normal(refl.shape, np.float32)


class Loader:
    """Draws index batches in a background thread."""

    def __init__(self, survey, cfg):
        self.survey, self.cfg = survey, cfg
        self.rng = np.random.default_rng(11)
        self.q = queue.Queue(cfg.queue_size)
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def make(self):
        idx = self.rng.integers(0, self.cfg.n_traces, self.cfg.batch)
        x, y = self.survey.recorded[idx], self.survey.refl[idx]
        gain = self.rng.uniform(0.7, 1.3, (len(idx), 1)).astype(np.float32)
        return jnp.asarray(x * gain), jnp.asarray(y * gain)

    def _work(self):
        while not self.stop.is_set():
            item = self.make()
            while not self.stop.is_set():
                try:
                    self.q.put(item, timeout=0.2)
                    break
                except queue.Full:
                    pass

    def next(self):
        return self.q.get()

    def close(self):
        self.stop.set()
        self.thread.join()


class DeconNet(eqx.Module):
    stem: eqx.nn.Conv1d
    blocks: list
    head: eqx.nn.Conv1d

    def __init__(self, width, depth, key):
        ks = jax.random.split(key, depth + 2)
        self.stem = eqx.nn.Conv1d(1, width, 17, padding=8, key=ks[0])
        self.blocks = [eqx.nn.Conv1d(width, width, 7, padding=3 * 2 ** d, dilation=2 ** d, key=ks[d + 1])
                       for d in range(depth)]
        self.head = eqx.nn.Conv1d(width, 1, 1, key=ks[-1])

    def __call__(self, trace):
        h = self.stem(trace[None])
        for conv in self.blocks:
            h = h + jax.nn.silu(conv(h))
        return self.head(h)[0]


class DeconTrainer:
    def __init__(self, cfg):
        self.cfg = cfg
        self.survey = Survey(cfg)
        self.model = DeconNet(cfg.width, cfg.depth, jax.random.key(3))
        sched = optax.cosine_decay_schedule(cfg.peak_lr, 50_000)
        self.tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(sched))
        self.opt = self.tx.init(eqx.filter(self.model, eqx.is_array))
        self.loader = Loader(self.survey, cfg)
        self._compile()

    def _compile(self):
        tx = self.tx

        def objective(model, x, y):
            pred = jax.vmap(model)(x)
            err = pred - y
            return jnp.mean(jnp.sqrt(err ** 2 + 1e-4)) + 1e-3 * jnp.mean(jnp.abs(pred))

        @eqx.filter_jit(donate="all-except-first")
        def update(batch, model, opt):
            x, y = batch
            loss, grads = eqx.filter_value_and_grad(objective)(model, x, y)
            upd, opt = tx.update(grads, opt, eqx.filter(model, eqx.is_array))
            return eqx.apply_updates(model, upd), opt, loss

        self.update = update

    def one(self):
        self.model, self.opt, loss = self.update(self.loader.next(), self.model, self.opt)
        return loss

    def run(self, steps):
        for _ in range(self.cfg.warmup):
            loss = self.one()
        loss.block_until_ready()
        tic = time.perf_counter()
        for step in range(1, steps + 1):
            loss = self.one()
            if step % 250 == 0:
                print(f"step {step:6d}  charbonnier {float(loss):.5f}", flush=True)
        loss.block_until_ready()
        toc = time.perf_counter()
        self.loader.close()
        print(f"done {steps} steps in {toc - tic:.4f} s")


if __name__ == "__main__":
    n = int(sys.argv[1]) if len(sys.argv) > 1 else Settings.default_steps
    DeconTrainer(Settings()).run(n)
