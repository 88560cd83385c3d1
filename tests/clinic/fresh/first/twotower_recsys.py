"""Matrix factorisation with in-batch softmax and row-wise Adagrad.

    python healthy.py [STEPS]

Only the rows of the users and items of a batch are read and written.
"""
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

N_USERS = 150_000
N_ITEMS = 60_000
N_EVENTS = 300_000
DIM = 64
BATCH = 1024
LR = 0.1
MAX_NORM = 3.0


@dataclass(slots=True)
class Event:
    user: int
    item: int
    day: float


class Tables(NamedTuple):
    user: jax.Array
    user_acc: jax.Array
    item: jax.Array
    item_acc: jax.Array
    bias: jax.Array


def simulate_log(rng):
    taste_of_user = rng.integers(50, size=N_USERS)
    users = rng.integers(N_USERS, size=N_EVENTS)
    popular = (N_ITEMS * rng.random(N_EVENTS) ** 2).astype(np.int64)
    items = popular - popular % 50 + taste_of_user[users]
    days = np.sort(rng.uniform(0, 365, size=N_EVENTS))
    return [Event(u, min(i, N_ITEMS - 1), d) for u, i, d in zip(users.tolist(), items.tolist(), days.tolist())]


def group_by_user(log):
    groups = defaultdict(list)
    for event in log:
        groups[event.user].append(event)
    return groups


def init_tables(key):
    k1, k2 = jax.random.split(key)
    return Tables(
        user=0.1 * jax.random.normal(k1, (N_USERS, DIM)),
        user_acc=jnp.full((N_USERS,), 1e-6),
        item=0.1 * jax.random.normal(k2, (N_ITEMS, DIM)),
        item_acc=jnp.full((N_ITEMS,), 1e-6),
        bias=jnp.zeros((N_ITEMS,)),
    )


def clip_rows(table, rows):
    values = table[rows]
    norms = jnp.linalg.norm(values, axis=-1, keepdims=True)
    return table.at[rows].set(values * jnp.minimum(1.0, MAX_NORM / jnp.maximum(norms, 1e-6)))


def adagrad_rows(table, acc, rows, grads):
    acc = acc.at[rows].add(jnp.square(grads).mean(-1))
    rate = LR * jax.lax.rsqrt(acc[rows])
    return table.at[rows].add(-rate[:, None] * grads), acc


def batch_loss(u, v, b):
    logits = u @ v.T + b
    labels = jnp.arange(u.shape[0])
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


@partial(jax.jit, donate_argnums=0)
def train_step(tables, users, items):
    u, v, b = tables.user[users], tables.item[items], tables.bias[items]
    loss, (gu, gv, gb) = jax.value_and_grad(batch_loss, argnums=(0, 1, 2))(u, v, b)
    user, user_acc = adagrad_rows(tables.user, tables.user_acc, users, gu)
    item, item_acc = adagrad_rows(tables.item, tables.item_acc, items, gv)
    user, item = clip_rows(user, users), clip_rows(item, items)
    bias = tables.bias.at[items].add(-LR * gb)
    return Tables(user, user_acc, item, item_acc, bias), loss


def batches(log, rng):
    users = np.array([e.user for e in log], np.int32)
    items = np.array([e.item for e in log], np.int32)
    while True:
        order = rng.permutation(len(users))
        users, items = users[order], items[order]
        for at in range(0, len(users) - BATCH + 1, BATCH):
            yield users[at : at + BATCH], items[at : at + BATCH]


def main(steps):
    rng = np.random.default_rng(0)
    log = simulate_log(rng)
    history = group_by_user(log)
    source = batches(log, rng)
    tables = init_tables(jax.random.key(0))
    for step in range(1, steps + 11):
        users, items = next(source)
        tables, loss = train_step(tables, users, items)
        if step % 50 == 0:
            last = history[int(users[0])][-1]
            print(f"{step}: loss {float(loss):.4f} (user {last.user} last seen on day {last.day:.0f})", flush=True)
        if step == 10:
            jax.block_until_ready(tables)
            start = time.perf_counter()
    jax.block_until_ready(tables)
    print(f"done {steps} steps in {time.perf_counter() - start:.2f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 15000)
