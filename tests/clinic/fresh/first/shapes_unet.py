"""Segmentation of drawn shapes with a small U-Net (flax.linen, TrainState).

    python healthy.py [STEPS]
"""
import os
import queue
import sys
import tempfile
import threading
import time
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training.train_state import TrainState
from PIL import Image, ImageDraw

SOURCE_SIZE = 192
SIZE = 32
CLASSES = 4
BATCH = 32
LOG_EVERY = 40


# ------------------------------------------------------------------ dataset


def draw_folder(root, count, seed=0):
    rng = np.random.default_rng(seed)
    for i in range(count):
        tint = rng.integers(40, 120, size=3)
        image = Image.new("RGB", (SOURCE_SIZE, SOURCE_SIZE), tuple(int(c) for c in tint))
        mask = Image.new("L", (SOURCE_SIZE, SOURCE_SIZE), 0)
        on_image, on_mask = ImageDraw.Draw(image), ImageDraw.Draw(mask)
        for _ in range(rng.integers(2, 5)):
            kind = int(rng.integers(1, CLASSES))
            cx, cy = rng.integers(30, SOURCE_SIZE - 30, size=2).tolist()
            r = int(rng.integers(16, 44))
            fill = tuple(int(c) for c in rng.integers(100, 255, size=3))
            box = (cx - r, cy - r, cx + r, cy + r)
            for pen, colour in ((on_image, fill), (on_mask, kind)):
                if kind == 1:
                    pen.ellipse(box, fill=colour)
                elif kind == 2:
                    pen.rectangle(box, fill=colour)
                else:
                    pen.polygon([(cx, cy - r), (cx + r, cy + r), (cx - r, cy + r)], fill=colour)
        noisy = np.asarray(image, np.int16) + rng.integers(-20, 20, size=(SOURCE_SIZE, SOURCE_SIZE, 3), dtype=np.int16)
        Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8)).save(
            os.path.join(root, f"{i:05d}_image.png"), compress_level=1
        )
        mask.save(os.path.join(root, f"{i:05d}_mask.png"), compress_level=1)


class ShapesFolder:
    def __init__(self, root):
        self.names = sorted(n[: -len("_image.png")] for n in os.listdir(root) if n.endswith("_image.png"))
        self.root = root
        self.cache = [self.load(n) for n in self.names]

    def __len__(self):
        return len(self.names)

    def load(self, name):
        image = Image.open(os.path.join(self.root, f"{name}_image.png")).convert("RGB")
        mask = Image.open(os.path.join(self.root, f"{name}_mask.png"))
        image = image.resize((SIZE, SIZE), Image.Resampling.BOX)
        mask = mask.resize((SIZE, SIZE), Image.Resampling.NEAREST)
        return np.asarray(image, np.float32) / 255.0, np.asarray(mask, np.int32)

    def get(self, index, rng):
        image, mask = self.cache[index]
        if rng.random() < 0.5:
            image, mask = image[:, ::-1], mask[:, ::-1]
        return image, mask


def batches(dataset, seed=1):
    rng = np.random.default_rng(seed)
    while True:
        order = rng.permutation(len(dataset))
        for at in range(0, len(order) - BATCH + 1, BATCH):
            pairs = [dataset.get(i, rng) for i in order[at : at + BATCH]]
            yield np.stack([p[0] for p in pairs]), np.stack([p[1] for p in pairs])


class Prefetcher:
    """Fills a bounded queue from an iterator in a background thread."""

    def __init__(self, iterator, depth=4):
        self.queue = queue.Queue(maxsize=depth)
        self.iterator = iterator
        threading.Thread(target=self._fill, daemon=True).start()

    def _fill(self):
        for item in self.iterator:
            self.queue.put(item)

    def __iter__(self):
        return self

    def __next__(self):
        return self.queue.get()


# -------------------------------------------------------------------- model


class Block(nn.Module):
    features: int
    kernel: tuple = (3, 3)
    stride: int = 1

    @nn.compact
    def __call__(self, x):
        x = nn.Conv(self.features, self.kernel, strides=(self.stride, self.stride))(x)
        x = nn.GroupNorm(num_groups=4)(x)
        return nn.relu(x)


def upsample(x):
    return jnp.repeat(jnp.repeat(x, 2, axis=1), 2, axis=2)


class SmallUNet(nn.Module):
    width: int = 8
    kernel: tuple = (3, 3)

    @nn.compact
    def __call__(self, x):
        w = self.width
        full = Block(w, self.kernel)(x)
        half = Block(2 * w, stride=2)(full)
        quarter = Block(3 * w, stride=2)(half)
        quarter = Block(3 * w)(quarter)
        half = half + upsample(nn.Conv(2 * w, (1, 1))(quarter))
        half = Block(2 * w)(half)
        full = full + upsample(nn.Conv(w, (1, 1))(half))
        full = Block(w, self.kernel)(full)
        return nn.Conv(CLASSES, (1, 1))(full)


@partial(jax.jit, donate_argnums=0)
def train_step(state, images, masks):
    def loss_fn(params):
        logits = state.apply_fn({"params": params}, images)
        loss = optax.softmax_cross_entropy_with_integer_labels(logits, masks).mean()
        return loss, logits

    (loss, logits), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
    predicted = logits.argmax(-1)
    hits = ((predicted == masks) & (masks > 0)).sum()
    union = ((predicted > 0) | (masks > 0)).sum()
    return state.apply_gradients(grads=grads), {"loss": loss, "iou": hits / jnp.maximum(union, 1)}


def create_state(seed):
    model = SmallUNet()
    params = model.init(jax.random.key(seed), jnp.zeros((1, SIZE, SIZE, 3)))["params"]
    return TrainState.create(apply_fn=model.apply, params=params, tx=optax.adam(1e-3))


def main(steps):
    with tempfile.TemporaryDirectory(prefix="shapes_") as root:
        draw_folder(root, 600)
        data = ShapesFolder(root)
        source = Prefetcher(batches(data))
        state = create_state(0)
        for i in range(1, steps + 11):
            images, masks = next(source)
            state, metrics = train_step(state, images, masks)
            if i % LOG_EVERY == 0:
                print(f"{i:6d}  loss {float(metrics['loss']):.4f}  iou {float(metrics['iou']):.3f}", flush=True)
            if i == 10:
                jax.block_until_ready(state)
                start = time.perf_counter()
        jax.block_until_ready(state)
        seconds = time.perf_counter() - start
    print(f"done {steps} steps in {seconds:.2f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 9000)
