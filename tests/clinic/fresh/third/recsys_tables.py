"""Two-tower recommender with big embedding tables, plain JAX.

Rows are updated sparsely: gradients are taken for the gathered rows only and
scattered back with row-wise Adagrad.

usage: python recsys_tables.py [STEPS]
"""
import sys
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

N_USERS = 200_000
N_ITEMS = 100_000
DIM = 32
BATCH = 512
NEGS = 512
LR = 0.05
MLP_LR = 0.01
EVAL_EVERY = 10
EVAL_USERS = 64
EVAL_ITEMS = 1024
LOG_EVERY = 500


def synthetic_log(n=400_000, seed=3):
    """Interactions (user, item) with a long-tailed item popularity."""
    rng = np.random.default_rng(seed)
    users = rng.integers(0, N_USERS, n)
    items = np.minimum(rng.pareto(1.1, n) * 400, N_ITEMS - 1).astype(np.int64)
    items = (items + 17 * (users % 64)) % N_ITEMS
    counts = np.bincount(items, minlength=N_ITEMS).astype(np.float64) ** 0.75 + 0.05
    cdf = np.cumsum(counts / counts.sum())
    return users.astype(np.int32), items.astype(np.int32), cdf.astype(np.float32)


def init_params(key):
    ku, ki, k1, k2 = jax.random.split(key, 4)
    return {
        "user": 0.05 * jax.random.normal(ku, (N_USERS, DIM)),
        "item": 0.05 * jax.random.normal(ki, (N_ITEMS, DIM)),
        "user_acc": jnp.full((N_USERS,), 0.1),
        "item_acc": jnp.full((N_ITEMS,), 0.1),
        "mlp": {
            "w1": jax.random.normal(k1, (DIM, 128)) * DIM ** -0.5,
            "b1": jnp.zeros(128),
            "w2": jax.random.normal(k2, (128, DIM)) * 128 ** -0.5,
            "b2": jnp.zeros(DIM),
        },
    }


def user_tower(mlp, rows):
    h = jax.nn.relu(rows @ mlp["w1"] + mlp["b1"])
    return rows + h @ mlp["w2"] + mlp["b2"]


def sample_negatives(key, cdf):
    u = jax.random.uniform(key, (NEGS,))
    return jnp.searchsorted(cdf, u).astype(jnp.int32).clip(0, N_ITEMS - 1)


def sampled_softmax(mlp, user_rows, pos_rows, neg_rows):
    q = user_tower(mlp, user_rows)
    pos = jnp.sum(q * pos_rows, axis=-1, keepdims=True)
    logits = jnp.concatenate([pos, q @ neg_rows.T], axis=-1)
    return -jnp.mean(jax.nn.log_softmax(logits)[:, 0])


def adagrad_rows(table, acc, ids, grad):
    acc = acc.at[ids].add(jnp.mean(grad * grad, axis=-1) * BATCH)
    scale = LR * BATCH ** 0.5 * jax.lax.rsqrt(acc[ids])
    return table.at[ids].add(-scale[:, None] * grad), acc


@partial(jax.jit, donate_argnums=(0, 1))
def train_step(params, key, log_users, log_items, cdf):
    key, k1, k2 = jax.random.split(key, 3)
    pick = jax.random.randint(k1, (BATCH,), 0, log_users.shape[0])
    users, items = log_users[pick], log_items[pick]
    negs = sample_negatives(k2, cdf)
    loss, (gm, gu, gp, gn) = jax.value_and_grad(sampled_softmax, argnums=(0, 1, 2, 3))(
        params["mlp"], params["user"][users], params["item"][items], params["item"][negs])
    out = {"mlp": jax.tree.map(lambda p, g: p - MLP_LR * g, params["mlp"], gm)}
    out["user"], out["user_acc"] = adagrad_rows(
        params["user"], params["user_acc"], users, gu)
    out["item"], out["item_acc"] = adagrad_rows(
        params["item"], params["item_acc"],
        jnp.concatenate([items, negs]), jnp.concatenate([gp, gn]))
    return out, key, loss


@jax.jit
def rank_candidates(params, users):
    q = user_tower(params["mlp"], params["user"][users])
    return jax.lax.top_k(q @ params["item"][:EVAL_ITEMS].T, 10)[1]


def recommend(params, users):
    return rank_candidates(params, users)


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 80_000
    log_users, log_items, cdf = (jax.device_put(a) for a in synthetic_log())
    key = jax.random.key(0)
    key, sub = jax.random.split(key)
    params = init_params(sub)
    panel = jnp.arange(EVAL_USERS, dtype=jnp.int32) * 31
    recommend(params, panel)
    shown = None

    for step in range(steps):
        if step == 3:
            jax.block_until_ready(params)
            t0 = time.perf_counter()
        params, key, loss = train_step(params, key, log_users, log_items, cdf)
        if step % EVAL_EVERY == 0:
            shown = recommend(params, panel)
        if step % LOG_EVERY == 0:
            top = np.asarray(shown)
            print(f"{step:6d} loss {float(loss):.4f} distinct {np.unique(top).size}", flush=True)

    jax.block_until_ready(params)
    secs = time.perf_counter() - t0
    print(f"done {steps - 3} steps in {secs:.4f} s")


if __name__ == "__main__":
    main()
