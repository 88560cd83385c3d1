"""Match short text pairs (question / paraphrase) with a siamese bag-of-subwords model.

A big hashed subword table is trained by Adagrad on the touched rows only; hard
negatives are searched in a pool of candidates with the present weights each step.
Usage: python pair_matcher.py [STEPS]
"""
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple
from zlib import crc32

import numpy as np
import jax
import jax.numpy as jnp

BUCKETS = 120_000      # rows of the hashed table
DIM = 64
SUBWORDS = 24          # per text, padded with row 0
BATCH = 128
POOL = 256             # candidates of which hard negatives are taken
HARD = 4
LR = 0.05


class Weights(NamedTuple):
    table: jax.Array
    table_acc: jax.Array
    dense: dict
    dense_acc: dict


def subwords(text):
    """Character trigrams hashed to rows of the table."""
    ids = []
    for word in text.split():
        word = f"<{word}>"
        ids += [1 + crc32(word[i:i + 3].encode()) % (BUCKETS - 1) for i in range(len(word) - 2)]
    return (ids + [0] * SUBWORDS)[:SUBWORDS]


class Corpus:
    """Topics with their own words; a pair is two texts of the same fine topic."""

    def __init__(self, n=12_000, topics=600, seed=4):
        rng = np.random.default_rng(seed)
        letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
        words = ["".join(rng.choice(letters, rng.integers(3, 7))) for _ in range(4000)]
        lexicon = rng.integers(0, len(words), (topics, 9))
        self.topic = rng.integers(0, topics, n).astype(np.int32)

        def phrase(t):
            pick = rng.choice(lexicon[t], 4)
            return " ".join(words[i] for i in pick)

        self.left = np.array([subwords(phrase(t)) for t in self.topic], np.int32)
        self.right = np.array([subwords(phrase(t)) for t in self.topic], np.int32)
        self.rng = rng

    def sample(self):
        """ids of a batch of pairs and of a pool of candidates."""
        pick = self.rng.integers(0, len(self.topic), BATCH)
        pool = self.rng.integers(0, len(self.topic), POOL)
        return ((self.left[pick], self.right[pick], self.topic[pick]),
                (self.right[pool], self.topic[pool]))


def init(key):
    k1, k2, k3 = jax.random.split(key, 3)
    table = jax.random.normal(k1, (BUCKETS, DIM), jnp.float32) * 0.1
    dense = {
        "w1": jax.random.normal(k2, (DIM, 256), jnp.float32) / 8,
        "b1": jnp.zeros(256),
        "w2": jax.random.normal(k3, (256, DIM), jnp.float32) / 16,
    }
    return Weights(table, jnp.full((BUCKETS, 1), 1e-3),
                   dense, jax.tree.map(lambda w: jnp.full_like(w, 1e-3), dense))


def head(dense, rows, ids):
    mask = (ids > 0)[..., None].astype(jnp.float32)
    bag = (rows * mask).sum(-2) / jnp.maximum(mask.sum(-2), 1.0)
    h = jax.nn.relu(bag @ dense["w1"] + dense["b1"])
    out = bag + h @ dense["w2"]
    return out / (jnp.linalg.norm(out, axis=-1, keepdims=True) + 1e-6)


@jax.jit
def encode(weights, ids):
    return head(weights.dense, weights.table[ids], ids)


@jax.jit
def similarity(queries, candidates, q_topic, c_topic):
    sim = queries @ candidates.T
    return jnp.where(q_topic[:, None] == c_topic[None], -2.0, sim)


@jax.jit
def hardest(sim, pool_ids):
    _, best = jax.lax.top_k(sim, HARD)
    return pool_ids[best]


@partial(jax.jit, donate_argnums=0)
def train_step(weights, left, right, negatives):
    ids = jnp.concatenate([left, right, negatives.reshape(-1, SUBWORDS)])
    n = left.shape[0]

    def loss_fn(rows, dense):
        vec = head(dense, rows, ids)
        a, others = vec[:n], jnp.concatenate([vec[n:2 * n, None], vec[2 * n:].reshape(n, -1, DIM)], 1)
        logits = jnp.einsum("nd,nkd->nk", a, others) / 0.1
        return -jax.nn.log_softmax(logits)[:, 0].mean()

    rows = weights.table[ids]
    loss, (g_rows, g_dense) = jax.value_and_grad(loss_fn, (0, 1))(rows, weights.dense)
    acc = weights.table_acc.at[ids].add((g_rows ** 2).mean(-1, keepdims=True))
    table = weights.table.at[ids].add(-LR * g_rows * jax.lax.rsqrt(acc[ids]))
    dense_acc = jax.tree.map(lambda a, g: a + g * g, weights.dense_acc, g_dense)
    dense = jax.tree.map(lambda w, a, g: w - LR * 0.2 * g * jax.lax.rsqrt(a),
                         weights.dense, dense_acc, g_dense)
    return Weights(table, acc, dense, dense_acc), loss


class Recall:
    """Retrieval on a fixed set, worked out in one thread beside the training."""

    def __init__(self, corpus):
        self.ids, self.other = corpus.left[:400], corpus.right[:400]
        self.worker = ThreadPoolExecutor(1)

    def score(self, a, b, step):
        rank = ((a @ b.T) > (a * b).sum(1, keepdims=True)).sum(1)
        print(f"step {step} recall@10 {np.mean(rank < 10):.3f}")

    def launch(self, weights, step):
        a, b = encode(weights, self.ids), encode(weights, self.other)
        self.worker.submit(self.score, np.asarray(a), np.asarray(b), step)


def train(steps):
    corpus = Corpus()
    weights = init(jax.random.key(1))
    recall = Recall(corpus)
    warm = min(10, steps // 4)
    began = time.perf_counter()
    for step in range(1, steps + 1):
        (left, right, topic), (pool, pool_topic) = corpus.sample()
        candidates = encode(weights, pool)
        sim = similarity(encode(weights, left), candidates, topic, pool_topic)
        negatives = hardest(sim, pool)
        weights, loss = train_step(weights, left, right, negatives)
        if step % 100 == 0:
            print(f"step {step} loss {float(loss):.4f}")
        if step % 500 == 0:
            recall.launch(weights, step)
        if step == warm:
            jax.block_until_ready(weights)
            began = time.perf_counter()
    jax.block_until_ready(weights)
    seconds = time.perf_counter() - began
    recall.worker.shutdown()
    print(f"done {steps - warm} steps in {seconds:.3f} s")


if __name__ == "__main__":
    train(int(sys.argv[1]) if len(sys.argv) > 1 else 30_000)
