"""Time to readmission from hospital records: discrete-hazard + Cox ranking on tabular data with many codes.

Parameters are plain lists of dicts; the code table has its own row-wise Adagrad that touches only rows in the batch.
"""
import math
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

CODES = 400_000          # hashed diagnosis / drug / procedure codes
DIM = 32
PER_PATIENT = 12
NUMERIC = 40
BINS = 24
BATCH = 512
PATIENTS = 60_000
ROUND = 20               # steps between looks at the learning rate


def make_cohort(seed=3):
    rng = np.random.default_rng(seed)
    codes = (CODES * rng.beta(0.6, 3.0, (PATIENTS, PER_PATIENT))).astype(np.int32)
    num = rng.standard_normal((PATIENTS, NUMERIC), dtype=np.float32)
    risk = num[:, :6] @ rng.normal(0, 0.4, 6) + np.sin(codes[:, 0] / 3e4)
    t_event = rng.exponential(10 * np.exp(-risk))
    t_cens = rng.uniform(2, 24, PATIENTS)
    time_ = np.minimum(np.minimum(t_event, t_cens), BINS - 1e-3).astype(np.float32)
    return {"codes": codes, "num": num, "time": time_, "event": (t_event <= t_cens).astype(np.float32)}


def init_dense(key, sizes):
    layers = []
    for i, (a, b) in enumerate(zip(sizes[:-1], sizes[1:])):
        k = jax.random.fold_in(key, i)
        layers.append({"w": jax.random.normal(k, (a, b)) / math.sqrt(a), "b": jnp.zeros((b,))})
    return layers


def init_state(key):
    layers = init_dense(key, [DIM + NUMERIC, 256, 256, BINS + 1])
    return {
        "layers": layers,
        "mom": jax.tree.map(jnp.zeros_like, layers),
        "table": 0.05 * jax.random.normal(jax.random.fold_in(key, 99), (CODES, DIM)),
        "acc": jnp.full((CODES,), 0.1),
    }


def forward(layers, rows, num):
    h = jnp.concatenate([rows.mean(1), num], -1)
    for lay in layers[:-1]:
        h = jax.nn.silu(h @ lay["w"] + lay["b"])
        h = h * jax.lax.rsqrt(jnp.mean(h * h, -1, keepdims=True) + 1e-6)
    out = h @ layers[-1]["w"] + layers[-1]["b"]
    return out[:, :BINS], out[:, BINS]


def objective(layers, rows, batch):
    hazard, score = forward(layers, rows, batch["num"])
    t, e = batch["time"], batch["event"]
    bin_ = jnp.floor(t).astype(jnp.int32)
    grid = jnp.arange(BINS)
    alive = (grid[None] < bin_[:, None]).astype(jnp.float32)
    hit = jax.nn.one_hot(bin_, BINS) * e[:, None]
    nll = -(alive * jax.nn.log_sigmoid(-hazard) + hit * jax.nn.log_sigmoid(hazard)).sum(1).mean()
    at_risk = t[None, :] >= t[:, None]
    log_risk = jax.nn.logsumexp(jnp.where(at_risk, score[None, :], -1e9), axis=1)
    cox = jnp.sum(e * (log_risk - score)) / jnp.maximum(e.sum(), 1.0)
    return nll + 0.3 * cox


def train_step(state, batch, lr):
    rows = state["table"][batch["codes"]]
    loss, (g, g_rows) = jax.value_and_grad(objective, argnums=(0, 1))(state["layers"], rows, batch)
    mom = jax.tree.map(lambda m, d: 0.9 * m + d, state["mom"], g)
    layers = jax.tree.map(lambda p, m: p - lr * m, state["layers"], mom)
    flat = batch["codes"].reshape(-1)
    g_rows = g_rows.reshape(-1, DIM)
    acc = state["acc"].at[flat].add(jnp.mean(g_rows * g_rows, -1) * BATCH)
    table = state["table"].at[flat].add(-lr * g_rows / jnp.sqrt(acc[flat] + 1e-8)[:, None])
    return {"layers": layers, "mom": mom, "table": table, "acc": acc}, loss


@jax.jit
def concordance(state, batch):
    _, score = forward(state["layers"], state["table"][batch["codes"]], batch["num"])
    t, e = batch["time"], batch["event"]
    pair = (t[:, None] < t[None, :]) * e[:, None]
    return jnp.sum(pair * (score[:, None] > score[None, :])) / jnp.maximum(pair.sum(), 1)


def minibatches(cohort, seed):
    rng = np.random.default_rng(seed)
    while True:
        order = rng.permutation(PATIENTS)
        for s in range(0, PATIENTS - BATCH + 1, BATCH):
            sel = order[s:s + BATCH]
            yield {k: v[sel] for k, v in cohort.items()}


class Plateau:
    """Lowers the rate when the smoothed loss stops falling, after a linear warm-up."""

    def __init__(self, base, warm_rounds=10, factor=0.7, patience=8):
        self.base, self.warm, self.factor, self.patience = base, warm_rounds, factor, patience
        self.best, self.bad, self.rounds = math.inf, 0, 0

    def update(self, loss):
        self.rounds += 1
        self.bad = 0 if loss < self.best - 1e-3 else self.bad + 1
        self.best = min(self.best, loss)
        if self.bad > self.patience:
            self.base, self.bad = self.base * self.factor, 0
        return self.base * min(1.0, self.rounds / self.warm)


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 8000
    cohort = make_cohort()
    state = init_state(jax.random.key(0))
    plateau = Plateau(0.02)
    lr = plateau.update(math.inf)
    step_fn = jax.jit(train_step, donate_argnums=(0,))
    stream = minibatches(cohort, 0)
    held = next(minibatches(cohort, 123))
    for _ in range(5):
        state, loss = step_fn(state, next(stream), lr)
    jax.block_until_ready(state)
    begin = time.perf_counter()
    for i in range(1, steps + 1):
        state, loss = step_fn(state, next(stream), lr)
        if i % ROUND == 0:
            lr = plateau.update(float(loss))
        if i % 100 == 0:
            print(f"{i} loss={float(loss):.4f} lr={lr:.2e}", flush=True)
        if i % 2000 == 0:
            print(f"  c-index {float(concordance(state, held)):.3f}", flush=True)
    jax.block_until_ready(state)
    print(f"done {steps} steps in {time.perf_counter() - begin:.3f} s")


if __name__ == "__main__":
    main()
