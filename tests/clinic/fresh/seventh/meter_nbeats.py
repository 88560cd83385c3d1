"""Global N-BEATS style forecaster for smart-meter load (generic blocks, optax)."""
import argparse
import time
import dataclasses
from typing import NamedTuple

import numpy as np
import jax
import jax.numpy as jnp
import optax


@dataclasses.dataclass(frozen=True)
class Cfg:
    meters: int = 1500
    hours: int = 24 * 365
    lookback: int = 168
    horizon: int = 24
    width: int = 128
    depth: int = 4
    blocks: int = 3
    buckets: int = 1500      # rows of the meter embedding
    emb: int = 16
    batch: int = 512
    lr: float = 1e-3


class State(NamedTuple):
    params: dict
    opt: optax.OptState
    rng: jax.Array


def synth_load(c, seed=0):
    r = np.random.default_rng(seed)
    t = np.arange(c.hours, dtype=np.float32)
    daily = np.stack([np.sin(2 * np.pi * t / 24), np.cos(2 * np.pi * t / 24),
                      np.sin(2 * np.pi * t / 168), np.cos(2 * np.pi * t / 8760)])
    mix = r.standard_normal((c.meters, 4), dtype=np.float32)
    y = mix @ daily
    y += 0.3 * r.standard_normal(y.shape, dtype=np.float32)
    return y


def dense(key, n_in, n_out):
    return {"w": jax.random.normal(key, (n_in, n_out)) * (2.0 / n_in) ** 0.5, "b": jnp.zeros(n_out)}


def init_params(c, key):
    ks = iter(jax.random.split(key, 1 + c.blocks * (c.depth + 2)))
    p = {"emb": 0.02 * jax.random.normal(next(ks), (c.buckets, c.emb)), "blocks": []}
    for _ in range(c.blocks):
        dims = [c.lookback + c.emb] + [c.width] * c.depth
        p["blocks"].append({
            "mlp": [dense(next(ks), a, b) for a, b in zip(dims, dims[1:])],
            "back": dense(next(ks), c.width, c.lookback),
            "fore": dense(next(ks), c.width, c.horizon)})
    return p


def forecast(p, hist, meter):
    e = p["emb"][meter]
    level = hist.mean(1, keepdims=True)
    r, out = hist - level, 0.0
    for blk in p["blocks"]:
        h = jnp.concatenate([r, e], 1)
        for l in blk["mlp"]:
            h = jax.nn.relu(h @ l["w"] + l["b"])
        r = r - (h @ blk["back"]["w"] + blk["back"]["b"])
        out = out + h @ blk["fore"]["w"] + blk["fore"]["b"]
    return out + level, r


def smape_ish(pred, y):
    return jnp.mean(jnp.abs(pred - y) / (1.0 + jnp.abs(pred) + jnp.abs(y)))


class Trainer:
    def __init__(self, c):
        self.c = c
        self.series = jnp.asarray(synth_load(c))
        self.opt = optax.chain(optax.clip_by_global_norm(2.0),
                               optax.adamw(optax.cosine_decay_schedule(c.lr, 100_000), weight_decay=1e-4))
        params = init_params(c, jax.random.key(0))
        self.state = State(params, self.opt.init(params), jax.random.key(7))
        self.update = jax.jit(self._update, donate_argnums=0)
        self.validate = jax.jit(self._validate)
        self.recent = []

    def _windows(self, rng, series, lo, hi):
        c = self.c
        a, b = jax.random.split(rng)
        m = jax.random.randint(a, (c.batch,), 0, c.meters)
        s = jax.random.randint(b, (c.batch,), lo, hi - c.lookback - c.horizon)
        w = series[m[:, None], s[:, None] + jnp.arange(c.lookback + c.horizon)]
        return w[:, :c.lookback], w[:, c.lookback:], m

    def _loss(self, params, hist, y, m):
        pred, r = forecast(params, hist, m)
        return smape_ish(pred, y) + 0.01 * jnp.mean(r ** 2), pred - y

    def _update(self, st, series):
        rng, sub = jax.random.split(st.rng)
        batch = self._windows(sub, series, 0, self.c.hours * 9 // 10)
        (loss, err), g = jax.value_and_grad(self._loss, has_aux=True)(st.params, *batch)
        upd, opt = self.opt.update(g, st.opt, st.params)
        return State(optax.apply_updates(st.params, upd), opt, rng), (loss, err)

    def _validate(self, params, rng, series):
        hist, y, m = self._windows(rng, series, self.c.hours * 9 // 10, self.c.hours)
        return smape_ish(forecast(params, hist, m)[0], y)

    def step(self):
        self.state, (loss, err) = self.update(self.state, self.series)
        self.recent = [err]
        return loss

    def report(self, i, loss):
        v = self.validate(self.state.params, jax.random.key(i), self.series)
        worst = jnp.abs(jnp.concatenate(self.recent)).max()
        print(f"{i:>7} train {float(loss):.4f} val {float(v):.4f} worst {float(worst):.2f}", flush=True)


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("steps", type=int, nargs="?", default=50_000)
    ap.add_argument("--batch", type=int, default=Cfg.batch)
    ap.add_argument("--width", type=int, default=Cfg.width)
    args = ap.parse_args()
    tr = Trainer(Cfg(batch=args.batch, width=args.width))
    for _ in range(5):
        loss = tr.step()
    tr.report(0, loss)
    t0 = time.perf_counter()
    for i in range(1, args.steps + 1):
        loss = tr.step()
        if i % 2000 == 0:
            tr.report(i, loss)
    jax.block_until_ready(tr.state.params)
    print(f"done {args.steps} steps in {time.perf_counter() - t0:.4f} s")


if __name__ == "__main__":
    main()
