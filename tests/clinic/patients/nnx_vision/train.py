"""Handwritten digits with a flax.nnx convolutional network and augmentation by Pillow."""

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from PIL import Image
from sklearn.datasets import load_digits

SIZE = 24


class CNN(nnx.Module):
    """Two convolutions with batch normalisation, two linear layers."""

    def __init__(self, width: int, *, rngs: nnx.Rngs) -> None:
        self.conv1 = nnx.Conv(1, width, (3, 3), strides=2, rngs=rngs)
        self.norm1 = nnx.BatchNorm(width, rngs=rngs)
        self.conv2 = nnx.Conv(width, 2 * width, (3, 3), strides=2, rngs=rngs)
        self.norm2 = nnx.BatchNorm(2 * width, rngs=rngs)
        self.hidden = nnx.Linear(2 * width * (SIZE // 4) ** 2, 128, rngs=rngs)
        self.out = nnx.Linear(128, 10, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = nnx.relu(self.norm1(self.conv1(x)))
        x = nnx.relu(self.norm2(self.conv2(x)))
        x = nnx.relu(self.hidden(x.reshape(len(x), -1)))
        return self.out(x)


def loss_fn(model: CNN, images: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Cross entropy, and the logits."""
    logits = model(images)
    loss = optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
    return loss, logits


@partial(nnx.jit, donate_argnums=(0, 1, 2))
def train_step(
    model: CNN,
    optimizer: nnx.Optimizer,
    metrics: nnx.MultiMetric,
    images: jax.Array,
    labels: jax.Array,
) -> None:
    """One update, in place."""
    (loss, logits), grads = nnx.value_and_grad(loss_fn, has_aux=True)(model, images, labels)
    metrics.update(loss=loss, logits=logits, labels=labels)
    optimizer.update(model, grads)


class Digits:
    """sklearn's digits as images, turned and shifted a little whenever they are drawn."""

    def __init__(self, batch_size: int, seed: int) -> None:
        digits = load_digits()
        pixels = (digits.images * 15.9).astype(np.uint8)
        self.images = [Image.fromarray(image).resize((SIZE, SIZE)) for image in pixels]
        self.labels = digits.target.astype(np.int32)
        self.batch_size, self.rng = batch_size, np.random.default_rng(seed)

    def augment(self, image: Image.Image) -> np.ndarray:
        shift = tuple(self.rng.integers(-2, 3, 2).tolist())
        turned = image.rotate(
            self.rng.uniform(-15, 15), resample=Image.Resampling.BICUBIC, translate=shift
        )
        return np.asarray(turned)

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        order = self.rng.permutation(len(self.labels))
        for start in range(0, len(order) - self.batch_size + 1, self.batch_size):
            chosen = order[start : start + self.batch_size]
            images = np.stack([self.augment(self.images[i]) for i in chosen])
            yield images[..., None].astype(np.float32) / 255, self.labels[chosen]


class Trainer:
    """Fits a model; callbacks are told the metrics of each epoch."""

    def __init__(self, model: CNN, learning_rate: float) -> None:
        self.model = model
        self.optimizer = nnx.Optimizer(model, optax.adam(learning_rate), wrt=nnx.Param)
        self.metrics = nnx.MultiMetric(
            accuracy=nnx.metrics.Accuracy(), loss=nnx.metrics.Average("loss")
        )
        self.callbacks: list[Callable[[int, dict[str, float]], None]] = []

    def fit(self, data: Digits, epochs: int) -> None:
        self.model.train()
        for epoch in range(epochs):
            start, seen = time.perf_counter(), 0
            for images, labels in data:
                train_step(self.model, self.optimizer, self.metrics, images, labels)
                seen += len(labels)
            logs = {name: float(value) for name, value in self.metrics.compute().items()}
            logs["rate"] = seen / (time.perf_counter() - start)
            self.metrics.reset()
            for callback in self.callbacks:
                callback(epoch, logs)


def report(epoch: int, logs: dict[str, float]) -> None:
    """Print an epoch's line."""
    print(
        f"epoch {epoch + 1}: loss {logs['loss']:.4f} accuracy {logs['accuracy']:.2%} "
        f"- {logs['rate']:.1f} examples/s",
        flush=True,
    )


def main() -> None:
    """Train and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=1000)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    trainer = Trainer(CNN(args.width, rngs=nnx.Rngs(args.seed)), args.learning_rate)
    trainer.callbacks.append(report)
    trainer.fit(Digits(args.batch_size, args.seed), args.epochs)
    leaves = jax.tree.leaves(nnx.state(trainer.model, nnx.Param))
    np.savez("result.npz", *map(jnp.asarray, leaves))


if __name__ == "__main__":
    main()
