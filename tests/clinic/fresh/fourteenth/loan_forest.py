"""loan_forest: probability of default from an ensemble of soft decision trees.

Every inner node of a tree is a logistic gate on a linear mix of the applicant's
columns, every leaf holds a log-odds score.  Gates start blurry and get sharper
(the temperature falls) as training goes on.  Trees see their own random subset
of columns and their own bagged rows, like in an ordinary random forest.

    python loan_forest.py [STEPS]
"""
import os
import sys
import tempfile
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

TREES = 48
DEPTH = 4
LEAVES = 2 ** DEPTH
NODES = LEAVES - 1

ROWS = 240_000
HOLDOUT = 20_000
N_NUM = 24
CARDS = (7, 12, 4, 51, 30, 9, 120, 16)  # purpose, job, housing, region, branch, ...
CAT_DIM = 4
WIDTH = N_NUM + CAT_DIM * len(CARDS)

BATCH = 1024
LR = 4e-3
BETA1, BETA2, EPS = 0.9, 0.99, 1e-8
DECAY = 1e-5
WARMUP = 8
STAGE = 25  # the temperature is lowered once per stage
LOG_EVERY = 500
EVAL_EVERY = 2000


# ---------------------------------------------------------------- portfolio

def simulate_portfolio(seed):
    """Draw applicants, and let some of them default."""
    rng = np.random.default_rng(seed)
    n = ROWS + HOLDOUT
    num = rng.standard_normal((n, N_NUM), dtype=np.float32)
    num[:, 1] = 0.6 * num[:, 0] + 0.8 * num[:, 1]      # debt follows income
    num[:, 5] = np.abs(num[:, 5]) * num[:, 2]          # utilisation
    num[:, 8] = np.exp(0.5 * num[:, 8])                # months on book, skewed
    cat = np.stack([rng.integers(0, c, n, dtype=np.int32) for c in CARDS], axis=1)

    score = -2.0 - 0.7 * num[:, 0] + 0.9 * num[:, 1] * (num[:, 2] > 0.3)
    score += 0.8 * (num[:, 5] > 1.0) - 0.5 * np.minimum(num[:, 8], 2.0)
    score += 0.4 * num[:, 3] * num[:, 4]
    for j, card in enumerate(CARDS):
        score += 0.35 * rng.standard_normal(card)[cat[:, j]]
    bad = (rng.random(n) < 1.0 / (1.0 + np.exp(-score))).astype(np.float32)

    num = (num - num[:ROWS].mean(0)) / num[:ROWS].std(0)
    # all categorical columns share one embedding table
    cat = cat + np.cumsum((0,) + CARDS[:-1]).astype(np.int32)
    train = {"num": num[:ROWS], "cat": cat[:ROWS], "bad": bad[:ROWS]}
    held = {"num": num[ROWS:], "cat": cat[ROWS:], "bad": bad[ROWS:]}
    return train, held


# ------------------------------------------------------------------- forest

def plant_forest(seed, bad_rate):
    k_gate, k_leaf, k_cat, k_cols = jax.random.split(jax.random.PRNGKey(seed), 4)
    prior = float(np.log(bad_rate / (1.0 - bad_rate)))
    params = {
        "gate_w": jax.random.normal(k_gate, (WIDTH, TREES, NODES)) / np.sqrt(WIDTH / 2),
        "gate_b": jnp.zeros((TREES, NODES)),
        "leaf": prior + 0.05 * jax.random.normal(k_leaf, (TREES, LEAVES)),
        "cat": 0.3 * jax.random.normal(k_cat, (sum(CARDS), CAT_DIM)),
        "vote": jnp.zeros((TREES,)),
    }
    columns = jax.random.bernoulli(k_cols, 0.5, (WIDTH, TREES, 1)).astype(jnp.float32)
    return params, columns


def tree_scores(params, columns, num, cat, tau):
    """Log-odds of default per applicant and tree, (rows, TREES)."""
    rows = num.shape[0]
    x = jnp.concatenate([num, params["cat"][cat].reshape(rows, -1)], axis=1)
    w = (params["gate_w"] * columns).reshape(WIDTH, TREES * NODES)
    z = (x @ w).reshape(rows, TREES, NODES) + params["gate_b"]
    gate = jax.nn.sigmoid(z / tau)
    reach = jnp.ones((rows, TREES, 1))
    for level in range(DEPTH):
        first = 2 ** level - 1
        g = gate[:, :, first:2 * first + 1]
        reach = jnp.stack([reach * g, reach * (1.0 - g)], axis=-1).reshape(rows, TREES, -1)
    return jnp.sum(reach * params["leaf"], axis=-1)


def log_loss(score, bad):
    return jax.nn.softplus(score) - bad * score


def forest_loss(params, columns, batch, bag, tau):
    scores = tree_scores(params, columns, batch["num"], batch["cat"], tau)
    bad = batch["bad"]
    each = jnp.sum(bag * log_loss(scores, bad[:, None]), axis=0) / (jnp.sum(bag, axis=0) + 1.0)
    together = jnp.mean(log_loss(scores @ jax.nn.softmax(params["vote"]), bad))
    return 0.5 * together + 0.5 * jnp.mean(each), (together, each)


# ----------------------------------------------------------------- training

def fresh_state(params, seed):
    zeros = partial(jax.tree.map, jnp.zeros_like)
    return {
        "params": params,
        "m": zeros(params),
        "v": zeros(params),
        "t": jnp.zeros((), jnp.int32),
        "key": jax.random.key(seed, impl="rbg"),
        "tree_ema": jnp.full((TREES,), 0.5, jnp.float32),
    }


def adam(params, grads, m, v, t, lr):
    m = jax.tree.map(lambda a, g: BETA1 * a + (1 - BETA1) * g, m, grads)
    v = jax.tree.map(lambda a, g: BETA2 * a + (1 - BETA2) * g * g, v, grads)
    tf = t.astype(jnp.float32)
    c1, c2 = 1.0 - BETA1 ** tf, 1.0 - BETA2 ** tf
    params = jax.tree.map(
        lambda p, a, b: p - lr * ((a / c1) / (jnp.sqrt(b / c2) + EPS) + DECAY * p), params, m, v)
    return params, m, v


@partial(jax.jit, donate_argnames=("state",))
def train_step(state, columns, table, tau):
    key, k_rows, k_bag = jax.random.split(state["key"], 3)
    rows = jax.random.randint(k_rows, (BATCH,), 0, ROWS)
    batch = jax.tree.map(lambda col: col[rows], table)
    bag = jax.random.bernoulli(k_bag, 0.63, (BATCH, TREES)).astype(jnp.float32)

    (_, (loss, each)), grads = jax.value_and_grad(forest_loss, has_aux=True)(
        state["params"], columns, batch, bag, tau)
    t = state["t"] + 1
    lr = LR * jnp.minimum(1.0, t / 100.0)
    params, m, v = adam(state["params"], grads, state["m"], state["v"], t, lr)
    ema = state["tree_ema"] + 0.02 * (each - state["tree_ema"])
    return {"params": params, "m": m, "v": v, "t": t, "key": key, "tree_ema": ema}, loss, each


@jax.jit
def score_applicants(params, columns, num, cat, tau):
    return tree_scores(params, columns, num, cat, tau) @ jax.nn.softmax(params["vote"])


def temperature(step):
    """1.0 at first, then 1% sharper each stage, never below 0.25."""
    return max(0.25, 0.99 ** (step // STAGE))


def gini(score, bad):
    rank = np.empty(len(score))
    rank[np.argsort(score)] = np.arange(1, len(score) + 1)
    n1 = bad.sum()
    n0 = len(bad) - n1
    auc = (rank[bad > 0.5].sum() - n1 * (n1 + 1) / 2) / (n0 * n1)
    return 2.0 * auc - 1.0


def review(state, columns, held, tau):
    """Gini of the held-out applicants, a few thousand at a time."""
    chunk = HOLDOUT // 5
    parts = [score_applicants(state["params"], columns, held["num"][i:i + chunk],
                              held["cat"][i:i + chunk], tau)
             for i in range(0, HOLDOUT, chunk)]
    return gini(np.concatenate(parts), np.asarray(held["bad"]))


def keep_forest(state, folder, step):
    path = os.path.join(folder, f"forest_{step:06d}.npz")
    np.savez(path, **{k: np.asarray(p) for k, p in state["params"].items()})
    return path


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
    train, held = simulate_portfolio(seed=2024)
    bad_rate = float(train["bad"].mean())
    print(f"{ROWS} loans, {100 * bad_rate:.1f}% bad, {N_NUM} numerical and {len(CARDS)} categorical columns")
    table = jax.device_put(train)
    held = jax.device_put(held)

    params, columns = plant_forest(7, bad_rate)
    n_params = sum(p.size for p in params.values())
    print(f"{TREES} trees of depth {DEPTH}, {n_params} parameters")
    state = fresh_state(params, seed=11)

    for _ in range(WARMUP):
        state, loss, each = train_step(state, columns, table, temperature(0))
    print(f"before: gini {review(state, columns, held, temperature(0)):.3f}")
    jax.block_until_ready(state)

    with tempfile.TemporaryDirectory(prefix="loan_forest_") as folder:
        best = -1.0
        start = time.perf_counter()
        for step in range(1, steps + 1):
            tau = temperature(step)
            state, loss, each = train_step(state, columns, table, tau)
            if step % LOG_EVERY == 0:
                ema = np.asarray(state["tree_ema"])
                print(f"{step:6d}  loss {float(loss):.4f}  trees {ema.min():.4f}..{ema.max():.4f}  tau {tau:.2f}")
            if step % EVAL_EVERY == 0:
                now = review(state, columns, held, tau)
                if now > best:
                    best = now
                    keep_forest(state, folder, step)
                print(f"{step:6d}  held-out gini {now:.3f} (best {best:.3f})")
        jax.block_until_ready(state)
        seconds = time.perf_counter() - start
        print(f"after: gini {review(state, columns, held, tau):.3f}")
    print(f"done {steps} steps in {seconds:.3f} s")


if __name__ == "__main__":
    main()
