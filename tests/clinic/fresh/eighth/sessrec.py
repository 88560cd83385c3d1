"""Next-item recommendation from click sessions (haiku, sampled softmax).

The item table is large and updated sparsely by SGD on the rows of the batch;
the small session encoder has its own Adam.
"""
import collections
import sys
import time
from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax

N_ITEMS = 300_000
DIM = 48
HISTORY = 20
BATCH = 128
N_NEG = 128
TABLE_LR = 0.5
N_SESSIONS = 30_000
WARM = 5


class ClickLog:
    """Synthetic sessions: walks in a latent ring of items with jumps."""

    def __init__(self, seed=11):
        rng = np.random.default_rng(seed)
        self.rng = rng
        self.lengths = rng.integers(5, 60, size=N_SESSIONS)
        self.starts = np.concatenate([[0], np.cumsum(self.lengths)[:-1]])
        total = int(self.lengths.sum())
        jumps = rng.geometric(0.02, size=total) * rng.choice([-1, 1], size=total)
        self.clicks = (np.cumsum(jumps) % N_ITEMS).astype(np.int32)
        pop = 1.0 / np.arange(1, N_ITEMS + 1) ** 0.7
        self.pop_cdf = np.cumsum(pop / pop.sum())

    def batch(self):
        rng = self.rng
        rows = rng.integers(0, N_SESSIONS, size=BATCH)
        cut = 1 + (rng.random(BATCH) * (self.lengths[rows] - 1)).astype(np.int64)
        back = np.arange(HISTORY)[None]
        pos = cut[:, None] - 1 - back
        mask = (pos >= 0).astype(np.float32)
        hist = self.clicks[self.starts[rows, None] + np.maximum(pos, 0)]
        target = self.clicks[self.starts[rows] + cut]
        # negatives: by popularity, without the targets of their own row
        neg = np.searchsorted(self.pop_cdf, rng.random((BATCH, N_NEG))).astype(np.int32)
        neg = np.minimum(neg, N_ITEMS - 1)
        clash = neg == target[:, None]
        neg[clash] = rng.integers(0, N_ITEMS, size=int(clash.sum()))
        return {"hist": hist, "mask": mask, "target": target, "neg": neg}


class Batch(NamedTuple):
    hist: jax.Array
    mask: jax.Array
    target: jax.Array
    neg: jax.Array


class TrainState(NamedTuple):
    table: jax.Array
    params: dict
    opt: tuple
    step: jax.Array


def encode(hist_vec, mask):
    """One attention pooling over the history, then a small tower."""
    age = hk.get_parameter("age", (HISTORY, DIM), init=hk.initializers.RandomNormal(0.02))
    h = hist_vec + age
    score = hk.Linear(1, name="score")(jnp.tanh(hk.Linear(DIM, name="key")(h)))[..., 0]
    w = jax.nn.softmax(jnp.where(mask > 0, score, -1e9), axis=-1)
    pooled = jnp.einsum("bh,bhd->bd", w, h)
    return hk.nets.MLP([64, DIM], name="tower")(pooled) + pooled


encoder = hk.without_apply_rng(hk.transform(encode))
optimiser = optax.adam(1e-3)


def sampled_loss(params, rows, mask):
    user = encoder.apply(params, rows["hist"], mask)
    pos = jnp.sum(user * rows["target"], axis=-1, keepdims=True)
    neg = jnp.einsum("bd,bnd->bn", user, rows["neg"])
    logits = jnp.concatenate([pos, neg], axis=-1)
    each = -jax.nn.log_softmax(logits)[:, 0]
    rank = jnp.mean((pos >= neg.max(axis=-1, keepdims=True)).astype(jnp.float32))
    return jnp.mean(each), (rank, each)


def update(state, batch):
    ids = {"hist": batch.hist, "target": batch.target, "neg": batch.neg}
    rows = {k: state.table[v] for k, v in ids.items()}
    grad_fn = jax.value_and_grad(sampled_loss, argnums=(0, 1), has_aux=True)
    (loss, (rank, each)), (g_params, g_rows) = grad_fn(state.params, rows, batch.mask)
    delta, opt = optimiser.update(g_params, state.opt, state.params)
    table = state.table
    for k, v in ids.items():
        table = table.at[v.reshape(-1)].add(-TABLE_LR * g_rows[k].reshape(-1, DIM))
    new = TrainState(table, optax.apply_updates(state.params, delta), opt, state.step + 1)
    return new, {"loss": loss, "hit": rank, "each": each}


train_step = jax.jit(update, donate_argnums=(0,))


@jax.jit
def hit_rate(state, batch):
    rows = {"hist": state.table[batch.hist], "target": state.table[batch.target], "neg": state.table[batch.neg]}
    return sampled_loss(state.params, rows, batch.mask)[1][0]


class Board:
    """Keeps the metrics of the last steps as they are, reads them rarely."""

    def __init__(self, every=50):
        self.every = every
        self.recent = collections.deque(maxlen=20)

    def add(self, step, metrics):
        self.recent.append(metrics)
        if step % self.every == 0:
            loss = np.mean([float(m["loss"]) for m in self.recent])
            print(f"[{step:6d}] loss {loss:.4f}", flush=True)


def after_step(step, state, metrics, board):
    board.add(step, metrics)
    return state


def init_state(seed=0):
    key_t, key_p = jax.random.split(jax.random.PRNGKey(seed))
    table = 0.1 * jax.random.normal(key_t, (N_ITEMS, DIM), jnp.float32)
    params = encoder.init(key_p, jnp.zeros((2, HISTORY, DIM)), jnp.ones((2, HISTORY)))
    return TrainState(table, params, optimiser.init(params), jnp.zeros((), jnp.int32))


def run(steps):
    log = ClickLog()
    valid = Batch(**log.batch())
    state = init_state()
    board = Board()
    for step in range(steps):
        if step == WARM:
            jax.block_until_ready(state)
            start = time.perf_counter()
        state, metrics = train_step(state, Batch(**log.batch()))
        state = after_step(step, state, metrics, board)
        if step % 200 == 199:
            print(f"         hit@1 of {N_NEG}: {float(hit_rate(state, valid)):.3f}", flush=True)
    jax.block_until_ready(state)
    return time.perf_counter() - start


if __name__ == "__main__":
    n_steps = int(sys.argv[1]) if len(sys.argv) > 1 else 35000
    seconds = run(n_steps)
    print(f"done {n_steps - WARM} steps in {seconds:.3f} s", flush=True)
