"""Card fraud scoring: embeddings of cards, merchants and devices plus an MLP.

Embedding rows are trained with row-wise Adagrad on the touched rows only, the
dense layers with Adam.  usage: python card_fraud.py [STEPS]
"""
import functools
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

SIZES = {"card": (300_000, 16), "merchant": (120_000, 24), "device": (150_000, 16)}
NUMERIC = 48
ROWS = 250_000
BATCH = 1024
WIDTHS = [192, 128, 64, 1]
ALPHA, GAMMA = 0.8, 1.5            # focal loss
LOG, EVAL = 100, 1000


def make_transactions(rng):
    numeric = rng.standard_normal((ROWS, NUMERIC), dtype=np.float32)
    cats = np.stack([(rng.random(ROWS) ** 2 * n).astype(np.int32) for n, _ in SIZES.values()], 1)
    risky = [rng.standard_normal(n).astype(np.float32) for n, _ in SIZES.values()]
    score = numeric[:, :6] @ np.array([.8, -.6, .5, .4, -.3, .3], np.float32) - 3.0
    for j, r in enumerate(risky):
        score = score + 0.7 * r[cats[:, j]]
    y = (rng.random(ROWS) < 1 / (1 + np.exp(-score))).astype(np.float32)
    return numeric, cats, y


def init_state(key, tx):
    tables, accs = {}, {}
    for i, (name, (n, d)) in enumerate(SIZES.items()):
        tables[name] = 0.05 * jax.random.normal(jax.random.fold_in(key, i), (n, d))
        accs[name] = jnp.full((n,), 0.1)
    dims = [NUMERIC + sum(d for _, d in SIZES.values())] + WIDTHS
    dense = []
    for i, (a, b) in enumerate(zip(dims[:-1], dims[1:])):
        w = jax.random.normal(jax.random.fold_in(key, 100 + i), (a, b)) * np.float32((2 / a) ** .5)
        dense.append([w, jnp.zeros(b), jnp.ones(b)])
    return {"tables": tables, "accs": accs}, {"dense": dense, "opt": tx.init(dense),
                                              "ema": jax.tree.map(jnp.copy, dense)}


def forward(dense, rows, x):
    h = jnp.concatenate([x] + [rows[k] for k in SIZES], axis=-1)
    for w, b, g in dense[:-1]:
        h = h @ w
        h = h * jax.lax.rsqrt(jnp.mean(h * h, -1, keepdims=True) + 1e-6) * g + b
        h = jax.nn.silu(h)
    w, b, _ = dense[-1]
    return (h @ w + b)[:, 0]


def focal(dense, rows, x, y):
    z = forward(dense, rows, x)
    p = jax.nn.sigmoid(z)
    pt = jnp.where(y > 0.5, p, 1 - p)
    at = jnp.where(y > 0.5, ALPHA, 1 - ALPHA)
    return -jnp.mean(at * (1 - pt) ** GAMMA * jnp.log(pt + 1e-7))


def lookup(tables, ids):
    return {k: tables[k][ids[:, j]] for j, k in enumerate(SIZES)}


@jax.jit
def read_batch(store, idx):
    numeric, cats, y = store
    return numeric[idx], cats[idx], y[idx]


@jax.jit
def gradients(tables, dense, x, ids, y):
    loss, (gd, gr) = jax.value_and_grad(focal, argnums=(0, 1))(dense, lookup(tables, ids), x, y)
    return loss, gd, gr


@functools.partial(jax.jit, donate_argnums=0)
def update_rows(sparse, ids, grads, lr):
    """Row-wise Adagrad: one accumulator a row, only rows of the batch are touched."""
    tables, accs = dict(sparse["tables"]), dict(sparse["accs"])
    for j, k in enumerate(SIZES):
        at = ids[:, j]
        accs[k] = accs[k].at[at].add(jnp.mean(grads[k] ** 2, -1) * 1e4)
        tables[k] = tables[k].at[at].add(-lr * grads[k] * 1e2 * jax.lax.rsqrt(accs[k][at])[:, None])
    return {"tables": tables, "accs": accs}


def make_update_dense(tx):
    def update_dense(net, grads):
        upd, opt = tx.update(grads, net["opt"], net["dense"])
        dense = optax.apply_updates(net["dense"], upd)
        ema = jax.tree.map(lambda e, p: 0.998 * e + 0.002 * p, net["ema"], dense)
        return {"dense": dense, "opt": opt, "ema": ema}
    return jax.jit(update_dense, donate_argnums=0)


@jax.jit
def score(tables, ema, x, ids):
    return forward(ema, lookup(tables, ids), x)


def auc(s, y):
    rank = np.empty(len(s))
    rank[np.argsort(s)] = np.arange(1, len(s) + 1)
    pos = y > 0.5
    return (rank[pos].sum() - pos.sum() * (pos.sum() + 1) / 2) / (pos.sum() * (~pos).sum())


def sampler(labels, rng):
    """Half of each batch is drawn from a tenth of the rows that holds most frauds."""
    fraud, rest = np.flatnonzero(labels > 0.5), np.flatnonzero(labels <= 0.5)
    while True:
        a = fraud[rng.integers(0, len(fraud), BATCH // 4)]
        b = rest[rng.integers(0, len(rest), BATCH - BATCH // 4)]
        yield np.concatenate([a, b]).astype(np.int32)


def main(steps):
    rng = np.random.default_rng(3)
    host = make_transactions(rng)
    hold = 8192
    held = tuple(a[:hold] for a in host)
    train = tuple(a[hold:] for a in host)
    store = jax.device_put(train)
    tx = optax.chain(optax.clip_by_global_norm(2.0), optax.adamw(1e-3, weight_decay=1e-4))
    sparse, net = init_state(jax.random.key(0), tx)
    update_dense = make_update_dense(tx)
    skip = steps // 4
    draw = sampler(train[2], rng)
    for i in range(steps):
        if i == skip:
            jax.block_until_ready((sparse, net))
            start = time.perf_counter()
        x, ids, y = read_batch(store, next(draw))
        loss, gd, gr = gradients(sparse["tables"], net["dense"], x, ids, y)
        lr = np.float32(0.02 if i < 0.8 * steps else 0.004)
        sparse = update_rows(sparse, ids, gr, lr)
        net = update_dense(net, gd)
        if i % LOG == 0:
            print(f"step {i} focal {float(loss):.5f}", flush=True)
        if i % EVAL == EVAL - 1:
            s = score(sparse["tables"], net["ema"], held[0], held[1])
            print(f"step {i} held-out AUC {auc(np.asarray(s), held[2]):.4f}", flush=True)
    jax.block_until_ready((sparse, net))
    print(f"done {steps - skip} steps in {time.perf_counter() - start:.3f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 8000)
