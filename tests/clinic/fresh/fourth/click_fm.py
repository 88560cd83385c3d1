"""Factorisation machine on implicit clicks with sampled negatives.

user x item latent factors + item side features; only the rows that a batch
touches are differentiated and written back (row-wise Adagrad), the small dense
part goes through optax.     python click_fm.py [STEPS]
"""
import sys
import time
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

N_USERS, N_ITEMS, DIM, SIDE = 150_000, 250_000, 32, 16
BATCH, NEGATIVES = 4096, 4
ROW_LR = 0.05
STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 60_000


class Table(NamedTuple):
    rows: jax.Array    # [n, DIM]
    seen: jax.Array    # [n] accumulated squared gradient, one number per row


class State(NamedTuple):
    users: Table
    items: Table
    dense: dict
    opt: optax.OptState
    key: jax.Array


def click_log(n=1_500_000, seed=5):
    """Zipf-like items, users with a taste for a region of the catalogue."""
    rng = np.random.default_rng(seed)
    u = rng.integers(0, N_USERS, n, dtype=np.int32)
    pop = (N_ITEMS * rng.random(n, dtype=np.float32) ** 3).astype(np.int32)
    i = (pop + u % 97 * 11) % N_ITEMS
    side = rng.standard_normal((N_ITEMS, SIDE), dtype=np.float32)
    return u, i.astype(np.int32), side


def new_table(key, n):
    return Table(0.05 * jax.random.normal(key, (n, DIM)), jnp.full((n,), 0.1))


def optimiser():
    sched = optax.warmup_cosine_decay_schedule(0.0, 1e-2, 100, 50_000)
    return optax.adam(sched)


tx = optimiser()


def fresh_state(seed=0):
    ku, ki, kd, key = jax.random.split(jax.random.key(seed), 4)
    dense = {"proj": 0.1 * jax.random.normal(kd, (SIDE, DIM)), "bias": jnp.zeros(())}
    return State(new_table(ku, N_USERS), new_table(ki, N_ITEMS), dense, tx.init(dense), key)


def bpr_loss(u_rows, i_rows, dense, side_rows):
    """i_rows: [1 + NEGATIVES, B, DIM], the clicked item first."""
    items = i_rows + side_rows @ dense["proj"]
    score = jnp.einsum("bd,kbd->kb", u_rows, items) + dense["bias"]
    margin = score[:1] - score[1:]
    reg = 1e-4 * (jnp.mean(u_rows**2) + jnp.mean(i_rows**2))
    return jnp.mean(jax.nn.softplus(-margin)) + reg


def write_rows(table, idx, grad):
    """Adagrad with one accumulator per row, touching only `idx`."""
    grad = grad * BATCH
    seen = table.seen.at[idx].add(jnp.mean(grad**2, -1))
    step = ROW_LR * grad / jnp.sqrt(seen[idx])[:, None]
    return Table(table.rows.at[idx].add(-step), seen)


def pick(key, click_u, click_i):
    ka, kb = jax.random.split(key)
    at = jax.random.randint(ka, (BATCH,), 0, click_u.shape[0])
    neg = jax.random.randint(kb, (NEGATIVES, BATCH), 0, N_ITEMS)
    return click_u[at], jnp.concatenate([click_i[at][None], neg])


@partial(jax.jit, donate_argnums=0)
def train_step(s: State, click_u, click_i, side):
    key, sub = jax.random.split(s.key)
    u, it = pick(sub, click_u, click_i)
    loss, (gu, gi, gd) = jax.value_and_grad(bpr_loss, argnums=(0, 1, 2))(
        s.users.rows[u], s.items.rows[it], s.dense, side[it])
    upd, opt = tx.update(gd, s.opt, s.dense)
    dense = optax.apply_updates(s.dense, upd)
    users = write_rows(s.users, u, gu)
    items = write_rows(s.items, it.reshape(-1), gi.reshape(-1, DIM))
    return State(users, items, dense, opt, key), loss


def main():
    u, i, side = click_log()
    click_u, click_i = jnp.asarray(u), jnp.asarray(i)
    side = jnp.asarray(side)
    state = fresh_state()
    for _ in range(10):
        state, loss = train_step(state, click_u, click_i, side)
    jax.block_until_ready(state)

    start = time.perf_counter()
    recent = None
    for n in range(STEPS):
        state, loss = train_step(state, click_u, click_i, side)
        if n % 50 == 0:
            # one number each 50 steps for the smoothed curve
            recent = float(loss) if recent is None else 0.9 * recent + 0.1 * float(loss)
        if n % 5000 == 4999:
            print(f"{n + 1:>7d}  bpr {recent:.4f}")
    jax.block_until_ready((state, loss))
    print(f"done {STEPS} steps in {time.perf_counter() - start:.4f} s")


if __name__ == "__main__":
    main()
