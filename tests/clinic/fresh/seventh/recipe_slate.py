#!/usr/bin/env python
"""Ingredient completion: rank candidate ingredients for an unfinished recipe.

Listwise (Plackett-Luce) loss on slates of candidates, set encoder in haiku, batches built by
worker processes.        usage: recipe_slate.py [STEPS]
"""
import argparse
import multiprocessing as mp
import queue
import time

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax

N_ITEMS, N_CUISINES, FEAT = 80000, 60, 128
SET, SLATE, POS, BATCH = 14, 32, 4, 96


def catalogue(seed=3):
    """Frozen content vectors of the ingredients, and the cuisine each belongs to."""
    rng = np.random.default_rng(seed)
    cuisine = np.sort(rng.integers(0, N_CUISINES, N_ITEMS))
    centre = rng.normal(size=(N_CUISINES, FEAT)).astype(np.float32)
    feats = centre[cuisine] + 0.8 * rng.standard_normal((N_ITEMS, FEAT), dtype=np.float32)
    return feats / np.sqrt(FEAT), cuisine


def make_batch(rng, lo, hi):
    c = rng.integers(0, N_CUISINES, BATCH)
    span = (hi - lo)[c][:, None]
    picks = (rng.random((BATCH, SET + POS)) * span).astype(np.int32) + lo[c][:, None]
    size = rng.integers(4, SET + 1, BATCH)
    mask = np.arange(SET)[None] < size[:, None]
    negatives = rng.integers(0, N_ITEMS, (BATCH, SLATE - POS))
    slate = np.concatenate([picks[:, SET:], negatives], 1)
    return {
        "basket": picks[:, :SET].astype(np.int32),
        "mask": mask.astype(np.float32),
        "slate": slate.astype(np.int32),
    }


def loader_main(seed, lo, hi, out, stop):
    rng = np.random.default_rng(seed)
    while not stop.is_set():
        batch = make_batch(rng, lo, hi)
        while not stop.is_set():
            try:
                out.put(batch, timeout=0.5)
                break
            except queue.Full:
                continue


class Loader:
    def __init__(self, cuisine, workers=1, depth=8):
        ctx = mp.get_context("spawn")
        edges = np.searchsorted(cuisine, np.arange(N_CUISINES + 1))
        self.q, self.stop = ctx.Queue(depth), ctx.Event()
        self.procs = [
            ctx.Process(target=loader_main, args=(s, edges[:-1], edges[1:], self.q, self.stop), daemon=True)
            for s in range(workers)
        ]
        for p in self.procs:
            p.start()

    def __iter__(self):
        while True:
            yield self.q.get()

    def close(self):
        self.stop.set()
        self.q.cancel_join_thread()
        for p in self.procs:
            p.join(3)
            if p.is_alive():
                p.terminate()


def net(table, basket, mask, slate):
    enc = hk.nets.MLP([192, 160], activation=jax.nn.gelu, name="item")
    x = enc(table[basket])
    att = hk.MultiHeadAttention(4, 32, w_init=hk.initializers.VarianceScaling(1.0), model_size=160)
    x = x + att(x, x, x, mask=(mask[:, None, :] * mask[:, :, None])[:, None] > 0)
    x = hk.LayerNorm(-1, True, True)(x)
    pooled = (x * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
    query = hk.nets.MLP([192, 160], name="query")(pooled)
    keys = enc(table[slate])
    return jnp.einsum("bd,bnd->bn", query, keys) / jnp.sqrt(160.0)


model = hk.without_apply_rng(hk.transform(net))
opt = optax.adamw(optax.cosine_decay_schedule(1e-3, 20000), weight_decay=1e-4)


def plackett_luce(scores):
    """The first POS entries are the true ones in order; the rest come after in any order."""
    ll = 0.0
    for i in range(POS):
        ll += scores[:, i] - jax.nn.logsumexp(scores[:, i:], axis=-1)
    return -ll.mean()


def update(params, opt_state, table, batch):
    def loss_fn(p):
        scores = model.apply(p, table, batch["basket"], batch["mask"], batch["slate"])
        return plackett_luce(scores)

    loss, grads = jax.value_and_grad(loss_fn)(params)
    updates, opt_state = opt.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss


train_step = jax.jit(update, donate_argnums=(0, 1))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("steps", type=int, nargs="?", default=12000)
    ap.add_argument("--workers", type=int, default=1)
    args = ap.parse_args()

    feats, cuisine = catalogue()
    table = jax.device_put(feats)
    loader = Loader(cuisine, args.workers)
    batches = iter(loader)
    params = model.init(jax.random.key(0), table, **next(batches))
    opt_state = opt.init(params)

    for _ in range(5):
        params, opt_state, loss = train_step(params, opt_state, table, next(batches))
    jax.block_until_ready(params)
    t0 = time.perf_counter()
    for step in range(args.steps):
        batch = next(batches)
        params, opt_state, loss = train_step(params, opt_state, table, batch)
        if step % 250 == 249:
            print(f"{step + 1:6d}  nll {loss:.3f}", flush=True)
    jax.block_until_ready(params)
    took = time.perf_counter() - t0
    loader.close()
    print(f"done {args.steps} steps in {took:.4f} s")


if __name__ == "__main__":
    main()
