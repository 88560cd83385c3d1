"""A classifier of tabular data, trained by a Trainer with callbacks.

Rows are drawn so that rare classes come as often as frequent ones, and get swap noise: some cells
are replaced by those of other rows.
"""

import argparse
import functools
import itertools
import pickle
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

Params = list[dict[str, jax.Array]]
Batch = tuple[np.ndarray, np.ndarray]


class Table:
    """Features and classes, of which some are rare."""

    def __init__(self, rows: int, features: int, classes: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        shares = rng.dirichlet(np.full(classes, 2.0))
        self.y = rng.choice(classes, rows, p=shares).astype(np.int32)
        centres = rng.normal(size=(classes, features))
        noise = rng.normal(size=(rows, features))
        self.x = (centres[self.y] * 0.4 + noise + 0.3 * np.roll(noise, 1, axis=1) ** 2).astype("f4")
        counts = np.bincount(self.y, minlength=classes)
        self.weights = (1 / counts)[self.y] / np.count_nonzero(counts)
        self.rng = rng

    def batches(self, size: int) -> Iterator[Batch]:
        for _ in range(len(self.x) // size):
            rows = self.rng.choice(len(self.x), size, replace=False, p=self.weights)
            x = self.x[rows]
            donors = self.rng.integers(0, len(self.x), x.shape)
            swapped = np.take_along_axis(self.x, donors, axis=0)
            yield np.where(self.rng.random(x.shape) < 0.1, swapped, x), self.y[rows]


def init_params(key: jax.Array, sizes: list[int]) -> Params:
    params = []
    for n_in, n_out in itertools.pairwise(sizes):
        key, sub = jax.random.split(key)
        w = jax.random.normal(sub, (n_in, n_out)) * np.sqrt(2 / n_in).astype("f4")
        params.append({"w": w, "b": jnp.zeros(n_out)})
    return params


def forward(params: Params, x: jax.Array) -> jax.Array:
    for layer in params[:-1]:
        x = jax.nn.gelu(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


def loss_fn(params: Params, x: jax.Array, y: jax.Array, smoothing: float) -> jax.Array:
    logits = forward(params, x)
    targets = optax.smooth_labels(jax.nn.one_hot(y, logits.shape[-1]), smoothing)
    return optax.softmax_cross_entropy(logits, targets).mean()


class Callback:
    def on_epoch_begin(self, trainer: "Trainer") -> None: ...
    def on_step_end(self, trainer: "Trainer", logs: dict[str, Any]) -> None: ...
    def on_epoch_end(self, trainer: "Trainer", logs: dict[str, Any]) -> None: ...


class Logger(Callback):
    """Speed and mean loss of an epoch; now and then the loss of a step."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.history: list[tuple[int, float]] = []

    def on_epoch_begin(self, trainer: "Trainer") -> None:
        self.start, self.seen = time.perf_counter(), 0

    def on_step_end(self, trainer: "Trainer", logs: dict[str, Any]) -> None:
        self.seen += logs["size"]
        if trainer.step % self.every == 0:
            self.history.append((trainer.step, float(logs["loss"])))

    def on_epoch_end(self, trainer: "Trainer", logs: dict[str, Any]) -> None:
        loss = float(logs["loss"])
        speed = self.seen / (time.perf_counter() - self.start)
        print(f"epoch {trainer.epoch:3d} | loss {loss:.4f} | {speed:8.0f} examples/s", flush=True)


class Checkpoint(Callback):
    def __init__(self, file: Path) -> None:
        self.file = file

    def on_epoch_end(self, trainer: "Trainer", logs: dict[str, Any]) -> None:
        self.file.write_bytes(pickle.dumps(jax.device_get(trainer.params)))


class Evaluation(Callback):
    """Accuracy on held-out rows every so many epochs; stops when it has not risen for long."""

    def __init__(self, table: Table, every: int, patience: int) -> None:
        self.x, self.y, self.every, self.patience = table.x, table.y, every, patience
        self.best, self.waited = 0.0, 0
        self.accuracy = jax.jit(lambda p, x, y: (forward(p, x).argmax(-1) == y).mean())

    def on_epoch_end(self, trainer: "Trainer", logs: dict[str, Any]) -> None:
        if (trainer.epoch + 1) % self.every:
            return
        accuracy = float(self.accuracy(trainer.params, self.x, self.y))
        self.waited = 0 if accuracy > self.best else self.waited + 1
        self.best = max(self.best, accuracy)
        trainer.stop = self.waited >= self.patience


class Annealing(Callback):
    """Less and less label smoothing."""

    def __init__(self, first: float, half_life: int, every: int) -> None:
        self.first, self.half_life, self.every = first, half_life, every

    def on_step_end(self, trainer: "Trainer", logs: dict[str, Any]) -> None:
        if trainer.step % self.every == 0:
            trainer.smoothing = self.first * 0.5 ** (trainer.step / self.half_life)


class Trainer:
    def __init__(
        self, params: Params, optimizer: optax.GradientTransformation, callbacks: list[Callback]
    ) -> None:
        self.params, self.opt_state = params, optimizer.init(params)
        self.optimizer, self.callbacks = optimizer, callbacks
        self.epoch = self.step = 0
        self.smoothing, self.stop = 0.1, False

    @functools.partial(jax.jit, static_argnames=("self",), donate_argnums=(1, 2))
    def train_step(
        self, params: Params, opt_state: optax.OptState, batch: Batch, smoothing: float
    ) -> tuple[Params, optax.OptState, jax.Array]:
        loss, grads = jax.value_and_grad(loss_fn)(params, *batch, smoothing)
        updates, opt_state = self.optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    def call(self, event: str, *args: Any) -> None:
        for callback in self.callbacks:
            getattr(callback, event)(self, *args)

    def fit(self, table: Table, epochs: int, batch_size: int) -> None:
        for self.epoch in range(epochs):
            self.call("on_epoch_begin")
            for batch in table.batches(batch_size):
                self.params, self.opt_state, loss = self.train_step(
                    self.params, self.opt_state, batch, self.smoothing
                )
                self.step += 1
                logs = {"loss": loss, "size": len(batch[0])}
                self.call("on_step_end", logs)
            self.call("on_epoch_end", logs)
            if self.stop:
                break
        print(f"stopped after step {self.step}, loss {float(loss)!r}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=1000)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    train = Table(38_400, 54, 7, args.seed)
    schedule = optax.warmup_cosine_decay_schedule(0.0, 1e-3, 200, 100_000)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule))
    params = init_params(jax.random.key(args.seed), [54, 384, 384, 7])
    callbacks = [
        Logger(every=100),
        Checkpoint(Path("checkpoint.pkl")),
        Evaluation(Table(2_000, 54, 7, args.seed), every=5, patience=1000),
        Annealing(first=0.1, half_life=50_000, every=25),
    ]
    Trainer(params, optimizer, callbacks).fit(train, args.epochs, args.batch_size)


if __name__ == "__main__":
    main()
