"""Listwise ranking of podcast episodes from logged listening sessions.

Each session shows a listener up to 20 episodes; the ranker scores them together
and is trained with a softmax over the list and over vectors of episodes clicked
earlier, kept in a large bank on the device.
"""
import functools
import itertools
import queue
import sys
import threading
import time
import zlib
from typing import NamedTuple

import flax.linen as nn
import grain
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training.train_state import TrainState

BATCH = 64            # sessions in each step
LIST = 20             # episodes in a session
N_EPISODES, N_TRAIN, N_HELD = 5000, 8192, 512
N_CONTEXT, N_STATS, N_HASH = 24, 12, 64
DIM, N_NEG = 32, 256
BANK = 1 << 19        # vectors of clicked episodes that are remembered
TEMPERATURE = 0.1
INPUTS = ("context", "title", "stats", "mask")

WORDS = """history science comedy murder football money startup kitchen garden ocean
space climate music jazz guitar novel cinema politics election justice children parent
sleep running cycling travel language memory physics robot doctor nurse farmer""".split()


class Catalog(NamedTuple):
    titles: list
    hashed: np.ndarray      # (episodes, N_HASH)
    stats: np.ndarray       # (episodes, N_STATS)


def hash_title(title):
    """Hashed bag of the character bigrams and trigrams of a title."""
    vec = np.zeros(N_HASH, np.float32)
    text = f" {title.lower()} "
    for n in (2, 3):
        for i in range(len(text) - n + 1):
            vec[zlib.crc32(text[i:i + n].encode()) % N_HASH] += 1.0
    return vec / max(1.0, np.linalg.norm(vec))


def make_catalog(rng):
    titles = [" ".join(rng.choice(WORDS, size=5)).title() for _ in range(N_EPISODES)]
    hashed = np.stack([hash_title(t) for t in titles]).astype(np.float32)
    stats = rng.standard_normal((N_EPISODES, N_STATS), dtype=np.float32)
    return Catalog(titles, hashed, stats)


def make_sessions(rng, catalog, n):
    context = rng.standard_normal((n, N_CONTEXT), dtype=np.float32)
    candidates = rng.integers(0, N_EPISODES, (n, LIST), dtype=np.int32)
    mask = np.arange(LIST) < rng.integers(8, LIST + 1, n)[:, None]
    taste = catalog.hashed @ rng.standard_normal((N_HASH, N_CONTEXT))
    taste += 0.3 * catalog.stats @ rng.standard_normal((N_STATS, N_CONTEXT))
    relevance = np.einsum("nc,nlc->nl", context, taste[candidates])
    relevance += rng.standard_normal((n, LIST))
    relevance[~mask] = -1e9
    clicks = relevance > 6.0
    clicks[np.arange(n), relevance.argmax(axis=1)] = True
    return {"context": context, "candidates": candidates,
            "clicks": clicks.astype(np.float32), "mask": mask.astype(np.float32)}


class SessionLog:
    def __init__(self, columns):
        self.columns = columns

    def __len__(self):
        return len(self.columns["clicks"])

    def __getitem__(self, i):
        return {name: column[i] for name, column in self.columns.items()}


def assemble(catalog, batch):
    """Joins a batch of sessions with the features of the episodes shown."""
    ids = batch["candidates"]
    return {
        "context": batch["context"],
        "title": catalog.hashed[ids],
        "stats": catalog.stats[ids],
        "clicks": batch["clicks"],
        "mask": batch["mask"],
    }


def feed(dataset, batches, stop):
    """Runs in a thread: keeps the queue of batches filled until told to stop."""
    for i in itertools.count():
        batch = jax.device_put(dataset[i])
        while not stop.is_set():
            try:
                batches.put(batch, timeout=0.5)
                break
            except queue.Full:
                continue
        if stop.is_set():
            return


def unit(x):
    return x * jax.lax.rsqrt(jnp.sum(x * x, axis=-1, keepdims=True) + 1e-6)


class ListRanker(nn.Module):
    @nn.compact
    def __call__(self, context, title, stats, mask):
        user = nn.Dense(DIM)(nn.gelu(nn.Dense(128)(context)))
        h = jnp.concatenate([title, stats], axis=-1)
        h = nn.gelu(nn.Dense(192)(h))
        h = nn.gelu(nn.Dense(128)(h))
        weight = mask[..., None]
        pooled = jnp.sum(h * weight, axis=1, keepdims=True)
        pooled = pooled / jnp.maximum(jnp.sum(weight, axis=1, keepdims=True), 1.0)
        h = jnp.concatenate([h, jnp.broadcast_to(pooled, h.shape)], axis=-1)
        h = nn.gelu(nn.Dense(128)(h))
        return unit(user), unit(nn.Dense(DIM)(h))


def forward(apply_fn, params, batch):
    return apply_fn({"params": params}, *(batch[name] for name in INPUTS))


def score(user, items, mask):
    scores = jnp.einsum("bd,bld->bl", user, items) / TEMPERATURE
    return jnp.where(mask > 0, scores, -1e9)


@functools.partial(jax.jit, donate_argnums=0)
def train_step(state, bank, batch):
    key = jax.random.fold_in(jax.random.key(11), state.step)
    negatives = bank[jax.random.randint(key, (N_NEG,), 0, BANK)]
    clicks = batch["clicks"]

    def loss_fn(params):
        user, items = forward(state.apply_fn, params, batch)
        shown = score(user, items, batch["mask"])
        others = user @ negatives.T / TEMPERATURE
        logp = jax.nn.log_softmax(jnp.concatenate([shown, others], axis=1), axis=1)
        target = clicks / jnp.sum(clicks, axis=1, keepdims=True)
        return -jnp.mean(jnp.sum(target * logp[:, :LIST], axis=1)), items

    (loss, items), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
    first = jnp.argmax(clicks, axis=1)
    vectors = items[jnp.arange(first.shape[0]), first]
    return state.apply_gradients(grads=grads), loss, vectors


@functools.partial(jax.jit, donate_argnums=0)
def remember(bank, vectors, cursor):
    return jax.lax.dynamic_update_slice_in_dim(bank, vectors, cursor, axis=0)


@jax.jit
def ndcg10(params, batch):
    user, items = forward(ListRanker().apply, params, batch)
    order = jnp.argsort(-score(user, items, batch["mask"]), axis=1)[:, :10]
    discount = 1.0 / jnp.log2(jnp.arange(2.0, 12.0))
    gained = jnp.take_along_axis(batch["clicks"], order, axis=1) @ discount
    ideal = jnp.sort(batch["clicks"], axis=1)[:, ::-1][:, :10] @ discount
    return jnp.mean(gained / ideal)


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 6000
    rng = np.random.default_rng(8)
    catalog = make_catalog(rng)
    sessions = make_sessions(rng, catalog, N_TRAIN + N_HELD)
    log = SessionLog({name: column[:N_TRAIN] for name, column in sessions.items()})
    held = {name: column[N_TRAIN:] for name, column in sessions.items()}
    held = jax.device_put(assemble(catalog, held))
    dataset = grain.MapDataset.source(log).shuffle(seed=5).repeat()
    dataset = dataset.batch(BATCH, drop_remainder=True)
    dataset = dataset.map(lambda batch: assemble(catalog, batch))

    ranker = ListRanker()
    params = ranker.init(jax.random.key(0), *(held[name] for name in INPUTS))["params"]
    state = TrainState.create(apply_fn=ranker.apply, params=params,
                              tx=optax.adamw(1e-3, weight_decay=1e-4))
    bank = unit(jax.random.normal(jax.random.key(1), (BANK, DIM)))
    cursor = 0

    batches, stop = queue.Queue(maxsize=4), threading.Event()
    feeder = threading.Thread(target=feed, args=(dataset, batches, stop), daemon=True)
    feeder.start()

    warmup = steps // 4
    for step in range(steps):
        if step == warmup:
            jax.block_until_ready((state.params, bank))
            start = time.perf_counter()
        state, loss, vectors = train_step(state, bank, batches.get())
        bank = remember(bank, vectors, cursor)
        cursor = (cursor + BATCH) % BANK
        if (step + 1) % 200 == 0:
            ndcg = ndcg10(state.params, held)
            print(f"step {step + 1:6d}  loss {float(loss):.4f}  ndcg {float(ndcg):.4f}")
    jax.block_until_ready((state.params, bank))
    seconds = time.perf_counter() - start

    stop.set()
    feeder.join(timeout=5.0)
    print(f"done {steps - warmup} steps in {seconds:.3f} s")


if __name__ == "__main__":
    main()
