"""Waits for a loader thread, collects garbage by hand, reads losses; `record` observes it."""

import gc
import queue
import threading

import jax
import jax.numpy as jnp
import numpy as np

BATCH, FEATURES = 64, 512


def load(batches: "queue.Queue[np.ndarray]") -> None:
    draw = np.random.default_rng(0)
    while True:
        batch = draw.normal(size=(BATCH, FEATURES)).astype(np.float32)
        for _ in range(60):
            batch = np.sort(batch, axis=1)[:, ::-1].copy()
        batches.put(batch)


@jax.jit  # type: ignore[untyped-decorator]
def step(weights: jax.Array, batch: jax.Array) -> tuple[jax.Array, jax.Array]:
    def loss(weights: jax.Array) -> jax.Array:
        hidden = jnp.tanh(batch @ weights)
        return jnp.mean(jnp.tanh(hidden @ weights) ** 2)

    value, gradient = jax.value_and_grad(loss)(weights)
    return weights - 0.1 * gradient, value


def train() -> None:
    batches: queue.Queue[np.ndarray] = queue.Queue(2)
    threading.Thread(target=load, args=(batches,), name="loader", daemon=True).start()
    kept = [{"number": number} for number in range(100_000)]
    weights = jnp.full((FEATURES, FEATURES), 0.01)
    for number in range(1_000_000):
        weights, loss = step(weights, batches.get())
        if number % 5 == 0:
            kept[0]["number"] = int(1000 * float(loss))
        if number % 15 == 0:
            gc.collect()


train()
