"""Leaf disease pictures -> 8 classes.  flax.nnx network, augmentation in a loader thread."""
import queue
import sys
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

BATCH = 32
SIDE = 32
CLASSES = 8
AHEAD = 4


class Photo:
    __slots__ = ("pixels", "label", "meta")

    def __init__(self, pixels, label, meta):
        self.pixels, self.label, self.meta = pixels, label, meta


def collect_photos(n=6000):
    rng = np.random.default_rng(2)
    yy, xx = np.mgrid[0:SIDE, 0:SIDE] / SIDE
    photos = []
    for i in range(n):
        lab = int(rng.integers(CLASSES))
        spots = np.sin((lab + 2) * xx * 3 + i) * np.cos((lab + 1) * yy * 4)
        img = np.stack([0.3 + 0.1 * spots, 0.5 + 0.2 * spots, np.full_like(spots, 0.2)], -1)
        img = (img * 255 + rng.integers(-12, 12, img.shape)).clip(0, 255).astype(np.uint8)
        photos.append(Photo(img, lab, {"id": f"leaf{i:06d}", "site": i % 37, "tags": [i % 5, i % 7]}))
    return photos


class Loader:
    """Shuffled, augmented batches; one thread works ahead of the training loop."""

    def __init__(self, photos, batch, seed=0):
        self.photos = photos
        self.pixels = np.stack([p.pixels for p in photos])
        self.labels = np.array([p.label for p in photos], np.int32)
        self.batch = batch
        self.rng = np.random.default_rng(seed)
        self.ready = queue.Queue(maxsize=AHEAD)
        self.thread = threading.Thread(target=self._fill, daemon=True)
        self.thread.start()

    def _augment(self, imgs):
        r = self.rng
        out = imgs
        flip = r.random(len(imgs)) < 0.5
        out[flip] = out[flip, :, ::-1]
        dy, dx = r.integers(-3, 4, 2)
        out = np.roll(out, (dy, dx), (1, 2))
        y, x = r.integers(0, SIDE - 8, 2)
        out[:, y:y + 8, x:x + 8] = 110
        return out

    def _make(self):
        pick = self.rng.integers(0, len(self.labels), self.batch)
        return self._augment(self.pixels[pick]), self.labels[pick]

    def _fill(self):
        while True:
            self.ready.put(self._make())

    def __iter__(self):
        while True:
            yield self.ready.get()


class ConvUnit(nnx.Module):
    def __init__(self, cin, cout, rngs, stride=1):
        self.conv = nnx.Conv(cin, cout, (3, 3), strides=stride, use_bias=False, rngs=rngs)
        self.norm = nnx.GroupNorm(cout, num_groups=8, rngs=rngs)

    def __call__(self, x):
        return nnx.relu(self.norm(self.conv(x)))


class LeafNet(nnx.Module):
    def __init__(self, rngs, base=24):
        self.stem = ConvUnit(3, base, rngs)
        self.body = nnx.List([
            ConvUnit(base, 2 * base, rngs, 2),
            ConvUnit(2 * base, 2 * base, rngs),
            ConvUnit(2 * base, 4 * base, rngs, 2),
            ConvUnit(4 * base, 4 * base, rngs),
        ])
        self.head = nnx.Linear(4 * base, CLASSES, rngs=rngs)

    def __call__(self, img):
        x = self.stem(img.astype(jnp.float32) / 127.5 - 1.0)
        for unit in self.body:
            x = unit(x)
        return self.head(x.mean((1, 2)))


def build(seed=0):
    graph, params = nnx.split(LeafNet(nnx.Rngs(seed)))
    tx = optax.sgd(optax.warmup_cosine_decay_schedule(0.0, 0.05, 200, 20_000), momentum=0.9, nesterov=True)

    def loss_fn(params, img, lab):
        logits = nnx.merge(graph, params)(img)
        soft = optax.smooth_labels(jax.nn.one_hot(lab, CLASSES), 0.05)
        return optax.softmax_cross_entropy(logits, soft).mean(), (logits.argmax(-1) == lab).mean()

    def step(params, opt, stats, img, lab):
        (loss, acc), grads = jax.value_and_grad(loss_fn, has_aux=True)(params, img, lab)
        upd, opt = tx.update(grads, opt, params)
        stats = 0.99 * stats + 0.01 * jnp.stack([loss, acc])
        return optax.apply_updates(params, upd), opt, stats

    return params, tx.init(params), jax.jit(step, donate_argnums=(0, 1, 2))


def main(steps):
    photos = collect_photos()
    loader = Loader(photos, BATCH)
    params, opt, step = build()
    stats = jnp.zeros(2)
    feed = iter(loader)
    for _ in range(4):
        params, opt, stats = step(params, opt, stats, *next(feed))
    jax.block_until_ready(stats)

    started = time.perf_counter()
    for n in range(1, steps + 1):
        img, lab = next(feed)
        params, opt, stats = step(params, opt, stats, img, lab)
        if n % 50 == 0:
            loss, acc = np.asarray(stats)
            if n % 1000 == 0:
                print(f"{n:6d}  loss {loss:.3f}  acc {acc:.3f}", flush=True)
    jax.block_until_ready((params, stats))
    print(f"done {steps} steps in {time.perf_counter() - started:.4f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 6000)
