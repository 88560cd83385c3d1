"""Click-through prediction: hashed features, one large embedding table, a small network on top.

Each feature has the mean of a few rows, so that no two share all of them (Bloom embeddings).
Of the table only the rows that a batch names are updated (plain SGD), as in the wide-and-deep
models of advertising.
"""

import argparse
import hashlib
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

ROWS, WIDTH = 100_000, 64
HASHES = 4
FIELDS = ("user", "item", "shop", "city", "device", "hour", "query", "campaign")
VALUES = (50_000, 200_000, 5_000, 800, 400, 24, 100_000, 3_000)
Net = dict[str, jax.Array]


def bucket(field: str, value: int, salt: int) -> int:
    """A row of a feature: names are hashed into the table."""
    return int(hashlib.md5(f"{salt}:{field}={value}".encode()).hexdigest(), 16) % ROWS


def hashed(events: np.ndarray) -> np.ndarray:
    """The rows of all features of these events."""
    rows = [
        [[bucket(f, v, salt) for salt in range(HASHES)] for f, v in zip(FIELDS, event, strict=True)]
        for event in events.tolist()
    ]
    return np.array(rows, dtype=np.int32)


class Log:
    """Events and clicks; the hashed features are kept in a file."""

    def __init__(self, folder: Path, size: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        skewed = rng.power(0.4, (size, len(FIELDS)))
        self.events = (skewed * VALUES).astype(np.int64)
        taste = np.sin(self.events * rng.uniform(0.1, 2, len(FIELDS))).sum(axis=1)
        self.clicks = (rng.random(size) < 1 / (1 + np.exp(2 - taste))).astype(np.float32)
        file = folder / f"rows_{size}_{seed}.npy"
        if not file.exists():
            folder.mkdir(parents=True, exist_ok=True)
            np.save(file, hashed(self.events))
        self.rows = np.load(file)

    def batches(self, size: int, rng: np.random.Generator) -> Iterator[tuple]:
        order = rng.permutation(len(self.clicks))
        for start in range(0, len(order) - size + 1, size):
            chosen = order[start : start + size]
            yield self.rows[chosen], self.clicks[chosen]


def score(net: Net, vectors: jax.Array) -> jax.Array:
    """Logits from the vectors of an event's fields and their products."""
    products = jnp.einsum("bfd,bgd->bfg", vectors, vectors)
    x = jnp.concatenate([vectors.reshape(len(vectors), -1), products.reshape(len(vectors), -1)], 1)
    x = jax.nn.relu(x @ net["w0"] + net["b0"])
    x = jax.nn.relu(x @ net["w1"] + net["b1"])
    return (x @ net["w2"])[:, 0]


adam = optax.adam(1e-3)


@partial(jax.jit, donate_argnums=(0, 1, 2))
def update(
    table: jax.Array, net: Net, opt_state: optax.OptState, rows: jax.Array, clicks: jax.Array
) -> tuple[jax.Array, Net, optax.OptState, jax.Array]:
    def log_loss(net: Net, found: jax.Array) -> jax.Array:
        vectors = found.mean(axis=2)
        return optax.sigmoid_binary_cross_entropy(score(net, vectors), clicks).mean()

    loss, (g_net, g_vectors) = jax.value_and_grad(log_loss, argnums=(0, 1))(net, table[rows])
    steps, opt_state = adam.update(g_net, opt_state)
    return table.at[rows].add(-5.0 * g_vectors), optax.apply_updates(net, steps), opt_state, loss


def init(seed: int) -> tuple[jax.Array, Net]:
    keys = jax.random.split(jax.random.key(seed), 4)
    inputs = len(FIELDS) * WIDTH + len(FIELDS) ** 2
    shapes = {"w0": (inputs, 512), "w1": (512, 256), "w2": (256, 1)}
    he = jax.nn.initializers.he_normal()
    net = {name: he(key, shape) for key, (name, shape) in zip(keys, shapes.items(), strict=False)}
    table = 0.05 * jax.random.normal(keys[-1], (ROWS, WIDTH))
    return table, {**net, "b0": jnp.zeros(512), "b1": jnp.zeros(256)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=1000)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--events", type=int, default=19_200)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    log = Log(Path("data"), args.events, args.seed)
    rng = np.random.default_rng(args.seed)
    table, net = init(args.seed)
    opt_state = adam.init(net)
    for epoch in range(args.epochs):
        began = time.perf_counter()
        total, batches = jnp.zeros(()), 0
        for rows, clicks in log.batches(args.batch_size, rng):
            table, net, opt_state, loss = update(table, net, opt_state, rows, clicks)
            total, batches = total + loss, batches + 1
        mean = float(total) / batches
        speed = batches * args.batch_size / (time.perf_counter() - began)
        print(f"epoch {epoch}  log loss {mean:.4f}  {speed:,.0f} examples/s", flush=True)
    print(f"mean log loss of the last epoch {mean!r}")


if __name__ == "__main__":
    main()
