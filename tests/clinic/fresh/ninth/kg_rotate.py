"""RotatE embeddings of a synthetic knowledge graph, row-wise Adagrad by hand."""
import itertools
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Hyper(NamedTuple):
    entities: int = 120_000
    relations: int = 40
    rank: int = 32           # complex pairs: a row has twice as many floats
    batch: int = 512
    negatives: int = 16
    margin: float = 6.0
    temperature: float = 1.0
    lr: float = 0.1
    seed: int = 0


class Tables(NamedTuple):
    ent: jax.Array
    rel: jax.Array
    ent_acc: jax.Array
    rel_acc: jax.Array


class Graph:
    """Triples with a bit of structure: relation r moves a cluster to another."""

    def __init__(self, hp, triples=400_000):
        rng = np.random.default_rng(hp.seed)
        self.hp = hp
        self.head = rng.integers(0, hp.entities, triples, dtype=np.int32)
        self.rel = rng.integers(0, hp.relations, triples, dtype=np.int32)
        jump = rng.integers(1, hp.entities, hp.relations)
        near = rng.integers(0, 5, triples)
        self.tail = ((self.head + jump[self.rel] + near) % hp.entities).astype(np.int32)
        self.known = None

    def batch(self, rng):
        hp = self.hp
        at = rng.integers(0, len(self.head), hp.batch)
        neg = rng.integers(0, hp.entities, (hp.batch, hp.negatives), dtype=np.int32)
        return self.head[at], self.rel[at], self.tail[at], neg

    def stream(self, seed, ahead=4):
        rng = np.random.default_rng(seed)
        with ThreadPoolExecutor(1) as pool:
            waiting = [pool.submit(self.batch, rng) for _ in range(ahead)]
            while True:
                waiting.append(pool.submit(self.batch, rng))
                yield waiting.pop(0).result()


def distance(h, r, t):
    re_h, im_h = jnp.split(h, 2, -1)
    re_t, im_t = jnp.split(t, 2, -1)
    c, s = jnp.cos(r), jnp.sin(r)
    d_re = re_h * c - im_h * s - re_t
    d_im = re_h * s + im_h * c - im_t
    return jnp.sqrt(d_re**2 + d_im**2 + 1e-9).sum(-1)


def loss_on_rows(h, r, t, n, hp):
    pos = jax.nn.log_sigmoid(hp.margin - distance(h, r, t))
    neg_d = distance(h[:, None], r[:, None], n)
    w = jax.nn.softmax(-hp.temperature * jax.lax.stop_gradient(neg_d), -1)
    neg = (w * jax.nn.log_sigmoid(neg_d - hp.margin)).sum(-1)
    return -(pos + neg).mean() / 2


def adagrad_rows(table, acc, rows, grad, lr):
    acc = acc.at[rows].add((grad**2).mean(-1))
    scale = lr / jnp.sqrt(acc[rows] + 1e-10)
    return table.at[rows].add(-scale[:, None] * grad), acc


@partial(jax.jit, static_argnames="hp", donate_argnums=(0,))
def update(tables, head, rel, tail, neg, hp):
    rows = tables.ent[head], tables.rel[rel], tables.ent[tail], tables.ent[neg]
    loss, grads = jax.value_and_grad(loss_on_rows, argnums=(0, 1, 2, 3))(*rows, hp)
    gh, gr, gt, gn = grads
    dim = gh.shape[-1]
    where = jnp.concatenate([head, tail, neg.reshape(-1)])
    what = jnp.concatenate([gh, gt, gn.reshape(-1, dim)])
    ent, ent_acc = adagrad_rows(tables.ent, tables.ent_acc, where, what, hp.lr)
    rel_t, rel_acc = adagrad_rows(tables.rel, tables.rel_acc, rel, gr, hp.lr)
    return Tables(ent, rel_t, ent_acc, rel_acc), loss


@jax.jit
def mean_rank(tables, head, rel, tail, others):
    """Rank of the true tail among a fixed sample of candidates."""
    h, r = tables.ent[head], tables.rel[rel]
    true = distance(h, r, tables.ent[tail])
    cand = distance(h[:, None], r[:, None], tables.ent[others][None])
    return (cand < true[:, None]).sum(-1).mean()


def init(hp):
    k1, k2 = jax.random.split(jax.random.key(hp.seed))
    width = 2 * hp.rank
    ent = jax.random.uniform(k1, (hp.entities, width), minval=-0.5, maxval=0.5)
    rel = jax.random.uniform(k2, (hp.relations, hp.rank), minval=-3.14, maxval=3.14)
    return Tables(ent, rel, jnp.zeros(hp.entities), jnp.zeros(hp.relations))


def main(steps, warm=5, log=100, test_each=1000):
    hp = Hyper()
    graph = Graph(hp)
    tables = init(hp)
    stream = graph.stream(seed=1)
    held = tuple(jnp.asarray(a[:64]) for a in (graph.head, graph.rel, graph.tail))
    others = jnp.arange(0, hp.entities, 240, dtype=jnp.int32)
    mean_rank(tables, *held, others).block_until_ready()

    for batch in itertools.islice(stream, warm):
        tables, loss = update(tables, *batch, hp=hp)
    jax.block_until_ready(tables)

    start = time.perf_counter()
    for step, batch in enumerate(itertools.islice(stream, steps), 1):
        tables, loss = update(tables, *batch, hp=hp)
        if step % log == 0:
            print(f"{step:6d} loss {loss:.4f}", flush=True)
        if step % test_each == 0:
            print(f"{step:6d} mean rank {mean_rank(tables, *held, others):.1f} of {others.size}")
    jax.block_until_ready(tables)
    seconds = time.perf_counter() - start
    print("done %d steps in %.3f s" % (steps, seconds))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 14000)
