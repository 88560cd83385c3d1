"""Classifies PNG images of coloured shapes with a small convolutional network."""

import argparse
import json
import queue
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import optax
from PIL import Image, ImageDraw

CLASSES = ("disc", "square", "triangle", "ring")
STORED, SIZE, EXAMPLES = 96, 32, 2560


def write_images(root: Path) -> None:
    """Draw the data set and its index."""
    rng = np.random.default_rng(3)
    root.mkdir(parents=True)
    index = []
    for number in range(EXAMPLES):
        label = int(rng.integers(len(CLASSES)))
        image = Image.fromarray(rng.integers(0, 120, (STORED, STORED, 3), dtype=np.uint8))
        left, top = rng.integers(5, 35, 2).tolist()
        width = int(rng.integers(30, 55))
        box = (left, top, left + width, top + width)
        colour = tuple(rng.integers(60, 256, 3).tolist())
        draw = ImageDraw.Draw(image)
        if CLASSES[label] == "disc":
            draw.ellipse(box, fill=colour)
        elif CLASSES[label] == "square":
            draw.rectangle(box, fill=colour)
        elif CLASSES[label] == "triangle":
            draw.regular_polygon((left + width / 2, top + width / 2, width / 2), 3, fill=colour)
        else:
            draw.ellipse(box, outline=colour, width=7)
        image.save(root / f"{number:05d}.png")
        index.append({"file": f"{number:05d}.png", "label": label, "box": list(box)})
    (root / "index.json").write_text(json.dumps(index))


class ShapesDataset:
    """The images, decoded and scaled down, and their labels."""

    def __init__(self, root: Path) -> None:
        if not (root / "index.json").exists():
            write_images(root)
        self.root = root
        self.records = json.loads((root / "index.json").read_text())
        self.images = [self.decode(record["file"]) for record in self.records]

    def decode(self, file: str) -> np.ndarray:
        image = Image.open(self.root / file).convert("RGB")
        return np.asarray(image.resize((SIZE, SIZE), Image.Resampling.LANCZOS))

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return self.images[index], self.records[index]["label"]


class DataLoader:
    """Shuffled batches, prepared by a thread of its own."""

    def __init__(self, dataset: ShapesDataset, batch_size: int, seed: int, ahead: int = 3) -> None:
        self.dataset, self.batch_size, self.ahead = dataset, batch_size, ahead
        self.rng = np.random.default_rng(seed)

    def collate(self, indices: np.ndarray, flips: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        images, labels = zip(*(self.dataset[int(i)] for i in indices), strict=True)
        batch = np.stack(images)
        batch[flips] = batch[flips, :, ::-1]
        return batch.astype(np.float32) / 255 - 0.5, np.array(labels, np.int32)

    def produce(self, batches: queue.Queue) -> None:
        order = self.rng.permutation(len(self.dataset))
        for start in range(0, len(order) - self.batch_size + 1, self.batch_size):
            indices = order[start : start + self.batch_size]
            batches.put(self.collate(indices, self.rng.random(len(indices)) < 0.5))
        batches.put(None)

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        batches: queue.Queue = queue.Queue(self.ahead)
        threading.Thread(target=self.produce, args=(batches,), daemon=True).start()
        while (batch := batches.get()) is not None:
            yield batch


def init(key: jax.Array) -> dict[str, jax.Array]:
    """Three convolutions and a linear layer."""
    shapes = {"conv1": (3, 3, 3, 32), "conv2": (3, 3, 32, 32), "conv3": (3, 3, 32, 32)}
    shapes["out"] = (32, len(CLASSES))
    keys = jax.random.split(key, len(shapes))
    he = jax.nn.initializers.he_normal()
    return {name: he(k, shape) for (name, shape), k in zip(shapes.items(), keys, strict=True)}


def logits_of(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    """GELU after each convolution; each halves the image."""
    for name in ("conv1", "conv2", "conv3"):
        x = jax.lax.conv_general_dilated(
            x, params[name], (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = jax.nn.gelu(x, approximate=False)
    return x.mean((1, 2)) @ params["out"]


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("data/shapes"))
    parser.add_argument("--epochs", type=int, default=1000)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    loader = DataLoader(ShapesDataset(args.data), args.batch_size, args.seed)
    optimizer = optax.adam(args.lr)
    params = init(jax.random.key(args.seed))
    opt_state = optimizer.init(params)

    def loss_fn(params: dict[str, jax.Array], images: jax.Array, labels: jax.Array) -> jax.Array:
        logits = logits_of(params, images)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    def update(params, opt_state, images, labels):  # noqa: ANN001, ANN202
        loss, grads = jax.value_and_grad(loss_fn)(params, images, labels)
        updates, opt_state = optimizer.update(grads, opt_state)
        return optax.apply_updates(params, updates), opt_state, loss

    update = jax.jit(update, donate_argnums=(0, 1))

    for epoch in range(1, args.epochs + 1):
        began, losses = time.time(), []
        for images, labels in loader:
            params, opt_state, loss = update(params, opt_state, images, labels)
            losses.append(loss)
        mean_loss = np.mean(jax.device_get(losses))
        speed = len(losses) * args.batch_size / (time.time() - began)
        print(f"[{epoch}] loss={mean_loss:.4f} ({speed:.1f} examples/s)", flush=True)
    np.savez("result.npz", **params)


if __name__ == "__main__":
    main()
