"""Shapes in PNG files, told apart by a flax.linen CNN that a grain pipeline feeds."""

import argparse
import functools
import io
import time
from collections.abc import Callable
from pathlib import Path

import grain
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from flax.training.train_state import TrainState
from PIL import Image, ImageDraw

SHAPES = ("ellipse", "rectangle", "triangle", "line", "cross")
STORED_SIZE = 24
SIZE = 24
Record = dict[str, np.ndarray]


def draw(rng: np.random.Generator, shape: str) -> Image.Image:
    """One shape of random colour and place on a coloured ground."""
    ground, colour = (tuple(int(c) for c in rng.integers(0, 256, 3)) for _ in range(2))
    image = Image.new("RGB", (STORED_SIZE, STORED_SIZE), ground)
    pen = ImageDraw.Draw(image)
    x, y = (int(v) for v in rng.integers(0, STORED_SIZE // 2, 2))
    r = int(rng.integers(STORED_SIZE // 5, STORED_SIZE // 2))
    if shape in ("ellipse", "rectangle"):
        getattr(pen, shape)([x, y, x + r, y + r], fill=colour)
    elif shape == "triangle":
        pen.polygon([(x, y + r), (x + r, y + r), (x + r // 2, y)], fill=colour)
    else:
        pen.line([x, y, x + r, y + r], fill=colour, width=2)
        if shape == "cross":
            pen.line([x + r, y, x, y + r], fill=colour, width=2)
    return image


def prepare(folder: Path, count: int) -> list[Path]:
    """Draws the data set once; the name of a file begins with its class."""
    folder.mkdir(parents=True, exist_ok=True)
    files = sorted(folder.glob("*.png"))
    if len(files) != count:
        rng = np.random.default_rng(7)
        for index in range(count):
            label = index % len(SHAPES)
            draw(rng, SHAPES[label]).save(folder / f"{label}_{index:05}.png")
        files = sorted(folder.glob("*.png"))
    return files


def decode(file: Path) -> Record:
    with Image.open(io.BytesIO(file.read_bytes())) as image:
        pixels = image.resize((SIZE, SIZE), Image.Resampling.BILINEAR)
    return {"image": np.asarray(pixels), "label": np.int32(file.name[0])}


def augment(record: Record, rng: np.random.Generator) -> Record:
    """Mirrors half of the images."""
    image = record["image"]
    if rng.random() < 0.5:
        image = image[:, ::-1]
    return {**record, "image": image}


def pipeline(files: list[Path], batch_size: int, seed: int) -> grain.IterDataset:
    return (
        grain.MapDataset.source(files)
        .seed(seed)
        .shuffle()
        .map(decode)
        .random_map(augment)
        .batch(batch_size, drop_remainder=True)
        .repeat()
        .to_iter_dataset(grain.ReadOptions(num_threads=2, prefetch_buffer_size=16))
    )


class CNN(nn.Module):
    classes: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = x / 127.5 - 1
        for features in (16, 32):
            x = nn.relu(nn.Conv(features, (3, 3))(x))
            x = nn.max_pool(x, (2, 2), strides=(2, 2))
        x = nn.relu(nn.Dense(128)(x.reshape(len(x), -1)))
        return nn.Dense(self.classes)(x)


@functools.partial(jax.jit, donate_argnums=0)
def train_step(state: TrainState, batch: Record) -> tuple[TrainState, dict[str, jax.Array]]:
    def loss_fn(params: dict) -> tuple[jax.Array, jax.Array]:
        logits = state.apply_fn({"params": params}, batch["image"])
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"])
        return losses.mean(), logits

    (loss, logits), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
    accuracy = (logits.argmax(-1) == batch["label"]).mean()
    return state.apply_gradients(grads=grads), {"loss": loss, "accuracy": accuracy}


def create(model: nn.Module, seed: int, learning_rate: float) -> TrainState:
    params = model.init(jax.random.key(seed), jnp.zeros((1, SIZE, SIZE, 3)))["params"]
    apply: Callable = model.apply
    return TrainState.create(apply_fn=apply, params=params, tx=optax.adamw(learning_rate))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=1000)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--data", type=Path, default=Path("data/shapes"))
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    files = prepare(args.data, 2560)
    batches = iter(pipeline(files, args.batch_size, args.seed))
    state = create(CNN(len(SHAPES)), args.seed, args.learning_rate)
    steps = len(files) // args.batch_size
    for epoch in range(1, args.epochs + 1):
        start = time.perf_counter()
        history = []
        for _ in range(steps):
            state, metrics = train_step(state, next(batches))
            history.append(metrics)
        means = {name: np.mean([float(m[name]) for m in history]) for name in metrics}
        speed = steps * args.batch_size / (time.perf_counter() - start)
        shown = " ".join(f"{name}={value:.4f}" for name, value in means.items())
        print(f"[{epoch}] {shown} ({speed:.0f} examples/s)", flush=True)
    print("final", {name: float(value) for name, value in means.items()})


if __name__ == "__main__":
    main()
