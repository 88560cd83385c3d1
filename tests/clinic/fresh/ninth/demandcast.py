"""Quantile forecasts of hourly electricity demand for a fleet of substations (mixer on patches)."""
import dataclasses
import queue
import sys
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx


@dataclasses.dataclass(frozen=True)
class Config:
    sites: int = 160
    hours: int = 24 * 365
    context: int = 336
    horizon: int = 48
    patch: int = 24
    width: int = 64
    depth: int = 2
    batch: int = 32
    quantiles: tuple = (0.1, 0.5, 0.9)
    lr: float = 2e-3
    ema: float = 0.995
    warmup: int = 5
    log_every: int = 50
    eval_every: int = 400


def make_demand(cfg, seed=0):
    rng = np.random.default_rng(seed)
    t = np.arange(cfg.hours)
    base = rng.uniform(20, 200, (cfg.sites, 1))
    day = np.sin(2 * np.pi * (t[None] + rng.uniform(0, 24, (cfg.sites, 1))) / 24)
    week = np.sin(2 * np.pi * (t[None] + rng.uniform(0, 168, (cfg.sites, 1))) / 168)
    load = base * (1 + 0.3 * day + 0.15 * week) + rng.normal(0, 4, (cfg.sites, cfg.hours))
    # meters drop out now and then
    for s in range(cfg.sites):
        for _ in range(6):
            a = rng.integers(0, cfg.hours - 30)
            load[s, a:a + rng.integers(2, 20)] = np.nan
    return load


def fill_gaps(row):
    bad = np.isnan(row)
    if bad.any():
        idx = np.arange(row.size)
        row = row.copy()
        row[bad] = np.interp(idx[bad], idx[~bad], row[~bad])
    return row


class WindowSource:
    """Random (context, horizon) windows, scaled by the mean of the context."""

    def __init__(self, cfg, load, seed):
        self.cfg = cfg
        self.load = np.stack([fill_gaps(r) for r in load]).astype(np.float32)
        self.rng = np.random.default_rng(seed)
        self.span = cfg.context + cfg.horizon
        starts = np.arange(0, cfg.hours - self.span, 6)
        self.index = np.stack(np.meshgrid(np.arange(cfg.sites), starts, indexing="ij"), -1).reshape(-1, 2)
        self.offsets = np.arange(self.span)

    def draw(self):
        pick = self.index[self.rng.integers(0, len(self.index), self.cfg.batch)]
        w = self.load[pick[:, :1], pick[:, 1:] + self.offsets]
        scale = np.abs(w[:, :self.cfg.context]).mean(1, keepdims=True) + 1e-3
        w = w / scale
        return w[:, :self.cfg.context], w[:, self.cfg.context:]


class Feeder(threading.Thread):
    def __init__(self, source, depth=4):
        super().__init__(daemon=True)
        self.source, self.q, self.stop = source, queue.Queue(depth), threading.Event()

    def run(self):
        while not self.stop.is_set():
            item = self.source.draw()
            while not self.stop.is_set():
                try:
                    self.q.put(item, timeout=0.1)
                    break
                except queue.Full:
                    continue

    def next(self):
        return self.q.get()


class MixBlock(nnx.Module):
    def __init__(self, tokens, width, rngs):
        self.n1 = nnx.LayerNorm(width, rngs=rngs)
        self.n2 = nnx.LayerNorm(width, rngs=rngs)
        self.tok = nnx.Linear(tokens, tokens, rngs=rngs)
        self.up = nnx.Linear(width, 2 * width, rngs=rngs)
        self.down = nnx.Linear(2 * width, width, rngs=rngs)

    def __call__(self, x):
        x = x + jnp.swapaxes(self.tok(jnp.swapaxes(self.n1(x), 1, 2)), 1, 2)
        return x + self.down(nnx.gelu(self.up(self.n2(x))))


class Forecaster(nnx.Module):
    def __init__(self, cfg, rngs):
        tokens = cfg.context // cfg.patch
        self.patch = cfg.patch
        self.out_shape = (cfg.horizon, len(cfg.quantiles))
        self.embed = nnx.Linear(cfg.patch, cfg.width, rngs=rngs)
        self.blocks = nnx.List([MixBlock(tokens, cfg.width, rngs) for _ in range(cfg.depth)])
        self.head = nnx.Linear(tokens * cfg.width, cfg.horizon * len(cfg.quantiles), rngs=rngs)

    def __call__(self, x):
        h = self.embed(x.reshape(x.shape[0], -1, self.patch))
        for b in self.blocks:
            h = b(h)
        return self.head(h.reshape(h.shape[0], -1)).reshape(-1, *self.out_shape)


def main():
    cfg = Config()
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    model = Forecaster(cfg, nnx.Rngs(0))
    graph, params = nnx.split(model, nnx.Param)
    schedule = optax.warmup_cosine_decay_schedule(0.0, cfg.lr, 100, max(steps, 200))
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=1e-4))
    state = {"params": params, "opt": tx.init(params), "ema": jax.tree.map(jnp.copy, params)}
    taus = jnp.array(cfg.quantiles)

    def pinball(params, x, y):
        pred = nnx.merge(graph, params)(x)
        err = y[..., None] - pred
        return jnp.mean(jnp.maximum(taus * err, (taus - 1) * err))

    def train_step(state, x, y):
        loss, grads = jax.value_and_grad(pinball)(state["params"], x, y)
        upd, opt = tx.update(grads, state["opt"], state["params"])
        params = optax.apply_updates(state["params"], upd)
        ema = jax.tree.map(lambda e, p: cfg.ema * e + (1 - cfg.ema) * p, state["ema"], params)
        return {"params": params, "opt": opt, "ema": ema}, loss

    train_step = jax.jit(train_step, donate_argnums=0)
    evaluate = jax.jit(pinball)

    load = make_demand(cfg)
    held_out = WindowSource(cfg, load, seed=99).draw()
    feeder = Feeder(WindowSource(cfg, load, seed=1))
    feeder.start()

    t0 = None
    for i in range(steps + cfg.warmup):
        if i == cfg.warmup:
            jax.block_until_ready(state)
            t0 = time.perf_counter()
        x, y = feeder.next()
        state, loss = train_step(state, x, y)
        if i % cfg.log_every == 0:
            print(f"{i:6d}  pinball {float(loss):.4f}", flush=True)
        if i and i % cfg.eval_every == 0:
            print(f"        held out (ema) {float(evaluate(state['ema'], *held_out)):.4f}", flush=True)
    jax.block_until_ready(state)
    dt = time.perf_counter() - t0
    feeder.stop.set()
    feeder.join()
    print(f"done {steps} steps in {dt:.3f} s")


if __name__ == "__main__":
    main()
