"""Forecast river and tide levels at a dozen gauges with a neural Kalman-style filter.

A residual network moves the latent state; observations correct it by a learned gain.
Usage: python river_kalman.py [STEPS]
"""
import sys
import time
from dataclasses import dataclass
from functools import partial

import numpy as np
import jax
import jax.numpy as jnp
import optax
from scipy.signal import lfilter


@dataclass(frozen=True)
class Config:
    gauges: int = 12
    latent: int = 64
    hidden: int = 96
    window: int = 48
    context: int = 336          # two weeks, for the climatology of a window
    batch: int = 64
    lead: int = 6               # blind hours at the end of each window
    seed: int = 11


OPTIM = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(2e-3))
TIDES = np.array([12.4206, 12.0, 12.6583, 23.9345, 25.8193, 6.2103])


def make_catchment(cfg, hours=30_000):
    rng = np.random.default_rng(cfg.seed)
    t = np.arange(hours)
    rain = rng.gamma(0.3, 2.0, hours) * (rng.random(hours) < 0.12)
    forcing = np.stack([f(2 * np.pi * t / p) for p in TIDES for f in (np.sin, np.cos)], 1)
    level = np.zeros((hours, cfg.gauges))
    upstream = rain
    for g in range(cfg.gauges):
        keep = 0.9 + 0.008 * g
        store = lfilter([1 - keep], [1, -keep], upstream)
        tide = forcing @ rng.normal(0, 0.02 * g, forcing.shape[1])
        level[:, g] = store + tide + rng.normal(0, 0.02, hours)
        upstream = 0.7 * store + 0.3 * np.roll(rain, g)
    level = (level - level.mean(0)) / level.std(0)
    seen = rng.random(level.shape) > 0.08
    inputs = np.concatenate([forcing, np.log1p(rain)[:, None]], 1)
    return level.astype(np.float32), seen.astype(np.float32), inputs.astype(np.float32)


def windows(cfg, data, lo, hi, seed):
    """Batches of (anomaly, mask, inputs); anomaly is against the local median."""
    level, seen, inputs = data
    rng = np.random.default_rng(seed)
    span = np.arange(cfg.window)
    past = np.arange(-cfg.context, 0)
    while True:
        start = rng.integers(lo + cfg.context, hi - cfg.window, cfg.batch)
        rows = start[:, None] + span
        base = np.median(level[start[:, None] + past], axis=1, keepdims=True)
        y = level[rows] - base
        m = seen[rows]
        yield y.astype(np.float32), m.astype(np.float32), inputs[rows]


def dense(key, n_in, n_out, scale=1.0):
    w = jax.random.normal(key, (n_in, n_out)) * scale / np.sqrt(n_in).astype(np.float32)
    return {"w": w, "b": jnp.zeros((n_out,))}


def init_params(cfg, key, n_inputs):
    k = jax.random.split(key, 5)
    d, h = cfg.latent, cfg.hidden
    return {"trans1": dense(k[0], d + n_inputs, h), "trans2": dense(k[1], h, d, 0.1),
            "obs": dense(k[2], d, cfg.gauges),
            "gain1": dense(k[3], 2 * cfg.gauges, h), "gain2": dense(k[4], h, d),
            "decay": jnp.full((d,), 2.0), "x0": jnp.zeros((d,))}


def apply(layer, x):
    return x @ layer["w"] + layer["b"]


def filter_pass(params, cfg, y, m, u):
    """Run predict / correct over a window; returns the one step predictions."""
    blind = jnp.arange(cfg.window) >= cfg.window - cfg.lead

    def step(x, inp):
        yt, mt, ut, bt = inp
        h = jnp.tanh(apply(params["trans1"], jnp.concatenate([x, ut], -1)))
        x = jax.nn.sigmoid(params["decay"]) * x + apply(params["trans2"], h)
        pred = apply(params["obs"], x)
        mask = jnp.where(bt, 0.0, mt)
        innov = (yt - pred) * mask
        g = jnp.tanh(apply(params["gain1"], jnp.concatenate([innov, mask], -1)))
        x = x + apply(params["gain2"], g) * jnp.tanh(jnp.mean(mask, -1, keepdims=True))
        return x, pred

    x0 = jnp.broadcast_to(params["x0"], (y.shape[0], cfg.latent))
    seq = (y.swapaxes(0, 1), m.swapaxes(0, 1), u.swapaxes(0, 1), blind)
    _, preds = jax.lax.scan(step, x0, seq)
    return preds.swapaxes(0, 1)


def loss_fn(params, cfg, batch, open_loop):
    y, m, u = batch
    err = (filter_pass(params, cfg, y, m, u) - y) ** 2 * m
    closed = err[:, : -cfg.lead].sum() / m[:, : -cfg.lead].sum()
    ahead = err[:, -cfg.lead:].sum() / m[:, -cfg.lead:].sum()
    per_gauge = err.sum((0, 1)) / m.sum((0, 1))
    return closed + open_loop * ahead, {"closed": closed, "ahead": ahead, "gauge": per_gauge}


@partial(jax.jit, static_argnames="cfg", donate_argnums=(0, 1))
def train_step(params, opt, batch, open_loop, cfg):
    (loss, aux), grads = jax.value_and_grad(loss_fn, has_aux=True)(params, cfg, batch, open_loop)
    updates, opt = OPTIM.update(grads, opt, params)
    return optax.apply_updates(params, updates), opt, dict(aux, loss=loss)


@partial(jax.jit, static_argnames="cfg")
def skill(params, batch, cfg):
    return loss_fn(params, cfg, batch, 1.0)[1]["ahead"]


def anneal(step):
    return np.float32(min(1.0, 0.1 + step / 2000))


class GaugeBoard:
    def __init__(self):
        self.last = None

    def update(self, metrics):
        self.last = metrics

    def line(self, step):
        m = jax.device_get(self.last)
        return f"{step:6d} loss {m['loss']:.4f} ahead {m['ahead']:.4f} worst gauge {m['gauge'].argmax()}"


def main(steps):
    cfg = Config()
    data = make_catchment(cfg)
    n = len(data[0])
    feed = windows(cfg, data, 0, int(n * 0.85), 1)
    held_out = next(windows(cfg, data, int(n * 0.85), n, 2))
    params = init_params(cfg, jax.random.key(cfg.seed), data[2].shape[1])
    opt = OPTIM.init(params)
    board = GaugeBoard()
    warm = min(8, steps // 4)
    t0 = time.perf_counter()
    for step in range(steps):
        if step == warm:
            jax.block_until_ready(params)
            t0 = time.perf_counter()
        params, opt, metrics = train_step(params, opt, next(feed), anneal(step), cfg)
        board.update(metrics)
        if step % 50 == 49:
            print(board.line(step + 1))
        if step % 200 == 199:
            print(f"       held-out lead error {float(skill(params, held_out, cfg)):.4f}")
    jax.block_until_ready(params)
    print(f"done {steps - warm} steps in {time.perf_counter() - t0:.3f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12000)
