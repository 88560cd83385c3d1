#!/usr/bin/env python
"""Click model: hashed id embeddings (row-wise Adagrad) + dense tower (Adam).

Raw logs hold user and ad keys; a loader thread looks the feature ids up on the
host and keeps a few batches ready.
"""
import argparse
import os
import queue
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

HP = argparse.Namespace(rows=400_000, dim=16, fields=12, dense=13, hidden=(128, 64),
                        batch=1024, lr_dense=1e-3, lr_rows=0.05)


class ClickLog:
    """Synthetic impressions plus the two host-side feature stores."""

    def __init__(self, n_users=60_000, n_ads=20_000, seed=11):
        r = np.random.default_rng(seed)
        half = HP.fields // 2
        self.user_feats = r.integers(0, HP.rows, (n_users, half), dtype=np.int32)
        self.ad_feats = r.integers(0, HP.rows, (n_ads, half), dtype=np.int32)
        self.user_dense = r.standard_normal((n_users, HP.dense), dtype=np.float32)
        self.ad_score = r.standard_normal(n_ads, dtype=np.float32)
        self.rng = r

    def draw(self, n):
        users = self.rng.integers(0, len(self.user_feats), n)
        ads = (self.rng.random(n) ** 2 * len(self.ad_feats)).astype(np.int64)
        return users, ads

    def lookup(self, users, ads):
        ids = np.concatenate([self.user_feats[users], self.ad_feats[ads]], axis=1)
        x = self.user_dense[users]
        y = (x[:, 0] + self.ad_score[ads] > 0.8).astype(np.float32)
        return ids, x, y


class Loader(threading.Thread):
    def __init__(self, log, batch, depth=4):
        super().__init__(daemon=True)
        self.log, self.batch = log, batch
        self.ready = queue.Queue(maxsize=depth)

    def run(self):
        while True:
            users, ads = self.log.draw(self.batch)
            self.ready.put(self.log.lookup(users, ads))

    def next(self):
        return self.ready.get()


def init_tower(key):
    sizes = (HP.fields * HP.dim + HP.dense, *HP.hidden, 1)
    keys = jax.random.split(key, len(sizes) - 1)
    return [{"w": jax.random.normal(k, (a, b)) * (2 / a) ** 0.5, "b": jnp.zeros(b)}
            for k, a, b in zip(keys, sizes[:-1], sizes[1:])]


def tower(layers, emb, x):
    h = jnp.concatenate([emb.reshape(emb.shape[0], -1), x], axis=1)
    for layer in layers[:-1]:
        h = jax.nn.relu(h @ layer["w"] + layer["b"])
    return (h @ layers[-1]["w"] + layers[-1]["b"])[:, 0]


dense_opt = optax.adam(HP.lr_dense)


def fresh_state(seed=0):
    k1, k2 = jax.random.split(jax.random.key(seed))
    layers = init_tower(k1)
    return {"layers": layers, "opt": dense_opt.init(layers),
            "table": jax.random.normal(k2, (HP.rows, HP.dim)) * 0.05,
            "acc": jnp.full((HP.rows,), 0.1), "ema": jnp.float32(0.7)}


def bce(layers, emb, x, y):
    return optax.sigmoid_binary_cross_entropy(tower(layers, emb, x), y).mean()


def step(state, ids, x, y):
    emb = state["table"][ids]
    loss, (g_dense, g_emb) = jax.value_and_grad(bce, argnums=(0, 1))(state["layers"], emb, x, y)
    upd, opt = dense_opt.update(g_dense, state["opt"])
    flat = ids.reshape(-1)
    g = g_emb.reshape(-1, HP.dim)
    acc = state["acc"].at[flat].add(jnp.mean(g * g, axis=1))
    table = state["table"].at[flat].add(-HP.lr_rows * g / jnp.sqrt(acc[flat])[:, None])
    return {"layers": optax.apply_updates(state["layers"], upd), "opt": opt, "table": table,
            "acc": acc, "ema": 0.99 * state["ema"] + 0.01 * loss}


train = jax.jit(step, donate_argnums=(0,))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("steps", nargs="?", type=int, default=60_000)
    args = ap.parse_args()

    loader = Loader(ClickLog(), HP.batch)
    loader.start()
    state = fresh_state()
    for _ in range(10):
        state = train(state, *loader.next())
    jax.block_until_ready(state)

    began = time.perf_counter()
    for n in range(1, args.steps + 1):
        state = train(state, *loader.next())
        if n % 5000 == 0:
            print(f"[{n}] smoothed bce {state['ema'].item():.4f}", flush=True)
    jax.block_until_ready(state)
    print(f"done {args.steps} steps in {time.perf_counter() - began:.4f} s")


if __name__ == "__main__":
    main()
