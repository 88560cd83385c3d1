"""Forecasts many related time series with a GRU (equinox)."""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.typing import ArrayLike

PAST, FUTURE, ITEMS = 64, 12, 40_000
Batch = tuple[np.ndarray, np.ndarray, np.ndarray]


class Forecaster(eqx.Module):
    """Begins with what it knows of the item, reads its past, and tells its future at once."""

    items: eqx.nn.Embedding
    cell: eqx.nn.GRUCell
    head: eqx.nn.MLP

    def __init__(self, hidden: int, key: jax.Array) -> None:
        item_key, cell_key, head_key = jax.random.split(key, 3)
        self.items = eqx.nn.Embedding(ITEMS, hidden, key=item_key)
        self.cell = eqx.nn.GRUCell(1, hidden, key=cell_key)
        self.head = eqx.nn.MLP(hidden, FUTURE, 2 * hidden, depth=1, key=head_key)

    def __call__(self, item: jax.Array, past: jax.Array) -> jax.Array:
        def read(state: jax.Array, x: jax.Array) -> tuple[jax.Array, None]:
            return self.cell(x[None], state), None

        state, _ = jax.lax.scan(read, self.items(item), past)
        return past[-1] + self.head(state)


def simulate(length: int = 200) -> np.ndarray:
    """Sales of each item: two seasons of its own, a random walk, noise."""
    rng = np.random.default_rng(5)
    t = np.arange(length)
    periods, phases = rng.uniform(10, 40, (2, ITEMS, 1)), rng.uniform(0, 6.28, (2, ITEMS, 1))
    seasons = np.sin(2 * np.pi * t / periods + phases).sum(0)
    walk = np.cumsum(rng.normal(0, 0.05, (ITEMS, length)), axis=1)
    return (seasons + walk + rng.normal(0, 0.1, (ITEMS, length))).astype(np.float32)


def windows(
    series: np.ndarray, batch: int, steps: int, rng: np.random.Generator
) -> Iterator[Batch]:
    """Items and a window of each, scaled by the mean and deviation of its past."""
    offsets = np.arange(PAST + FUTURE)
    for _ in range(steps):
        items = rng.integers(0, len(series), batch, dtype=np.int32)
        starts = rng.integers(0, series.shape[1] - PAST - FUTURE, batch)
        window = series[items[:, None], starts[:, None] + offsets]
        past = window[:, :PAST]
        mean, deviation = past.mean(1, keepdims=True), past.std(1, keepdims=True) + 1e-3
        window = (window - mean) / deviation
        yield items, window[:, :PAST], window[:, PAST:]


def mean_error(
    model: Forecaster, items: ArrayLike, past: ArrayLike, future: ArrayLike
) -> jax.Array:
    """Mean absolute error."""
    return jnp.mean(jnp.abs(jax.vmap(model)(items, past) - future))


def rank_correlation(forecast: ArrayLike, future: ArrayLike) -> jax.Array:
    """Spearman's coefficient, the mean over the batch."""
    ranks = [jnp.argsort(jnp.argsort(days, axis=1), axis=1) for days in (forecast, future)]
    ours, theirs = (rank - (FUTURE - 1) / 2 for rank in ranks)
    return jnp.mean(jnp.sum(ours * theirs, axis=1) / jnp.sum(ours**2, axis=1))


def loss_fn(
    model: Forecaster, items: ArrayLike, past: ArrayLike, future: ArrayLike
) -> tuple[jax.Array, jax.Array]:
    """Huber loss; and beside it how well the order of the days is foretold."""
    forecast = jax.vmap(model)(items, past)
    order = rank_correlation(forecast, future)
    return jnp.mean(optax.huber_loss(forecast, future)), order


optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3))
evaluate = eqx.filter_jit(mean_error)


@eqx.filter_jit(donate="all")
def make_step(
    model: Forecaster,
    opt_state: optax.OptState,
    items: ArrayLike,
    past: ArrayLike,
    future: ArrayLike,
) -> tuple[Forecaster, optax.OptState, jax.Array, jax.Array]:
    """One update."""
    (loss, order), grads = eqx.filter_value_and_grad(loss_fn, has_aux=True)(
        model, items, past, future
    )
    updates, opt_state = optimizer.update(grads, opt_state)
    return eqx.apply_updates(model, updates), opt_state, loss, order


def main() -> None:
    """Train, and evaluate after each epoch on the last days."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=60, help="an epoch")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    file = Path("data/series.npy")
    if not file.exists():
        file.parent.mkdir(exist_ok=True)
        np.save(file, simulate())
    series = np.load(file)
    split = series.shape[1] - 80
    rng = np.random.default_rng(args.seed)
    held_out = next(windows(series[:, split:], 64, 1, rng))

    model = Forecaster(args.hidden, jax.random.key(args.seed))
    opt_state = optimizer.init(eqx.filter(model, eqx.is_array))
    for epoch in range(args.epochs):
        start = time.perf_counter()
        for batch in windows(series[:, :split], args.batch_size, args.steps, rng):
            model, opt_state, loss, order = make_step(model, opt_state, *batch)
        error = float(evaluate(model, *held_out))
        speed = args.steps * args.batch_size / (time.perf_counter() - start)
        print(
            f"{epoch=} loss={float(loss):.4f} order={float(order):.3f} {error=:.4f} "
            f"{speed:.0f} examples/s",
            flush=True,
        )
    eqx.tree_serialise_leaves("result.eqx", model)
    print("final error", repr(error))


if __name__ == "__main__":
    main()
