"""Day-ahead load forecasts for many substations: Trainer class, evaluation, checkpoints, EMA."""
import os
import pickle
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax


@dataclass(frozen=True)
class Config:
    stations: int = 24_000
    history: int = 1_400
    look_back: int = 168
    horizon: int = 24
    batch: int = 256
    width: int = 160
    blocks: int = 3
    lr: float = 5e-4
    ema: float = 0.998
    eval_every: int = 25
    save_every: int = 5_000
    seed: int = 4


class State(NamedTuple):
    params: hk.Params
    ema: hk.Params
    opt: optax.OptState
    bias_bank: jax.Array      # running residual profile of each station (week x hour)
    step: jax.Array


def make_series(cfg):
    rng = np.random.default_rng(cfg.seed)
    t = np.arange(cfg.history)
    n = 1200
    daily = rng.uniform(0.3, 1, (n, 1)) * np.sin(2 * np.pi * (t / 24 + rng.uniform(0, 1, (n, 1))))
    weekly = 0.4 * np.sin(2 * np.pi * (t / 168 + rng.uniform(0, 1, (n, 1))))
    noise = 0.15 * rng.standard_normal((n, cfg.history))
    return (daily + weekly + noise).astype(np.float32)


def nbeats(x, prior, cfg):
    """residual stacks; gives (forecast, what was left of the input)"""
    total = prior
    for _ in range(cfg.blocks):
        h = jax.nn.relu(hk.Linear(cfg.width)(jnp.concatenate([x, prior], -1)))
        h = jax.nn.relu(hk.Linear(cfg.width)(h))
        h = jax.nn.relu(hk.Linear(cfg.width)(h))
        x = x - hk.Linear(cfg.look_back)(h)
        total = total + hk.Linear(cfg.horizon)(h)
    return total, x


class Trainer:
    def __init__(self, cfg: Config):
        self.cfg = cfg
        self.series = jnp.asarray(make_series(cfg))
        self.net = hk.without_apply_rng(hk.transform(partial(nbeats, cfg=cfg)))
        self.tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(cfg.lr))
        self.key = jax.random.key(cfg.seed)
        self.ckpt_dir = tempfile.TemporaryDirectory(prefix="gridload_")
        self.best = float("inf")
        self.log = []
        self.state = self._fresh()
        self.val = self._validation_windows(192)
        self._step = jax.jit(self._train_step, donate_argnums=0)
        self._predict = jax.jit(self._forward)

    # ---- set-up
    def _fresh(self):
        c = self.cfg
        params = self.net.init(self.key, jnp.zeros((2, c.look_back)), jnp.zeros((2, c.horizon)))
        return State(params, jax.tree.map(jnp.copy, params), self.tx.init(params),
                     jnp.zeros((c.stations, 7 * c.horizon)), jnp.zeros((), jnp.int32))

    def _validation_windows(self, n):
        c, rng = self.cfg, np.random.default_rng(99)
        row = rng.integers(0, 1200, n)
        at = rng.integers(0, c.history - c.look_back - c.horizon, n)
        win = np.stack([np.asarray(self.series[r, a:a + c.look_back + c.horizon]) for r, a in zip(row, at)])
        return jnp.asarray(win[:, :c.look_back]), jnp.asarray(win[:, c.look_back:])

    # ---- jitted pieces
    def _forward(self, params, x):
        scale = jnp.abs(x).mean(-1, keepdims=True) + 1e-3
        out, _ = self.net.apply(params, x / scale, jnp.zeros((x.shape[0], self.cfg.horizon)))
        return out * scale

    def _train_step(self, state, series, key):
        c = self.cfg
        k1, k2, k3 = jax.random.split(jax.random.fold_in(key, state.step), 3)
        station = jax.random.randint(k1, (c.batch,), 0, c.stations)
        start = jax.random.randint(k2, (c.batch,), 0, c.history - c.look_back - c.horizon)
        cols = start[:, None] + jnp.arange(c.look_back + c.horizon)
        win = series[(station % series.shape[0])[:, None], cols]
        x, y = win[:, :c.look_back], win[:, c.look_back:]
        slot = (start // 24 % 7)[:, None] * c.horizon + jnp.arange(c.horizon)
        prior = state.bias_bank[station[:, None], slot]
        scale = jnp.abs(x).mean(-1, keepdims=True) + 1e-3

        def loss_fn(params):
            pred, rest = self.net.apply(params, x / scale, prior)
            err = pred - y / scale
            q = jax.random.uniform(k3, (c.batch, 1), minval=0.3, maxval=0.7)
            return jnp.maximum(q * err, (q - 1) * err).mean() + 1e-3 * jnp.square(rest).mean(), (err, rest)

        (loss, (err, rest)), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
        upd, opt = self.tx.update(grads, state.opt, state.params)
        params = optax.apply_updates(state.params, upd)
        ema = optax.incremental_update(params, state.ema, 1 - c.ema)
        bank = state.bias_bank.at[station[:, None], slot].add(-0.05 * err)
        return State(params, ema, opt, bank, state.step + 1), {"loss": loss, "rest": rest}

    # ---- driving
    def evaluate(self):
        x, y = self.val
        pred = self._predict(self.state.ema, x)
        return jnp.abs(pred - y).mean()

    def save(self):
        path = os.path.join(self.ckpt_dir.name, "last.pkl")
        with open(path, "wb") as f:
            pickle.dump(jax.device_get((self.state.params, self.state.ema)), f)

    def train(self, steps):
        c = self.cfg
        mae = None
        for i in range(1, steps + 1):
            self.state, out = self._step(self.state, self.series, self.key)
            if i % c.eval_every == 0:
                mae = self.evaluate()
            if i % c.save_every == 0:
                self.best = min(self.best, float(mae))
                print(f"[{i}] pinball {float(out['loss']):.4f} best mae {self.best:.4f}", flush=True)
                self.save()
        jax.block_until_ready(self.state)


if __name__ == "__main__":
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 40_000
    trainer = Trainer(Config())
    trainer.train(25)
    tic = time.perf_counter()
    trainer.train(n)
    took = time.perf_counter() - tic
    trainer.ckpt_dir.cleanup()
    print(f"done {n} steps in {took:.4f} s")
