"""Captions for little synthetic scenes: a small CNN encoder and a transformer decoder (equinox)."""
import queue
import sys
import threading
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

COLOURS = {"red": (1, .1, .1), "green": (.1, .9, .2), "blue": (.2, .3, 1), "white": (1, 1, 1)}
SHAPES, SIZES = ["square", "disc", "bar", "cross"], ["small", "large"]
WORDS = ["<pad>", "<s>", "</s>", "a", "and", "left", "of", *COLOURS, *SHAPES, *SIZES]
TOK = {w: i for i, w in enumerate(WORDS)}
IMG, MAX_LEN = 32, 16


def draw(canvas, shape, colour, r, cx, cy):
    yy, xx = np.mgrid[:IMG, :IMG]
    dx, dy = np.abs(xx - cx), np.abs(yy - cy)
    mask = {"square": (dx < r) & (dy < r), "disc": dx ** 2 + dy ** 2 < r * r,
            "bar": (dx < r) & (dy < 2), "cross": ((dx < 2) & (dy < r)) | ((dy < 2) & (dx < r))}[shape]
    canvas[mask] = COLOURS[colour]


def make_scenes(n, seed=0):
    rng = np.random.default_rng(seed)
    images = np.zeros((n, IMG, IMG, 3), np.float32)
    annotations = []
    for i in range(n):
        words = []
        for cx in (9, 23):
            colour, shape, size = rng.choice(list(COLOURS)), rng.choice(SHAPES), rng.choice(SIZES)
            draw(images[i], shape, colour, 3 if size == "small" else 7, cx, rng.integers(9, 23))
            words += ["a", size, colour, shape] + (["left", "of"] if cx == 9 else [])
        annotations.append({"image_id": i, "caption": " ".join(words)})
    return (images * 255).astype(np.uint8), annotations


def encode(caption):
    ids = [TOK["<s>"], *(TOK[w] for w in caption.split()), TOK["</s>"]]
    return ids + [0] * (MAX_LEN + 1 - len(ids))


class Loader:
    """Shuffled batches, prepared by a background thread a little ahead of the trainer."""

    def __init__(self, images, annotations, batch_size, seed=0, workers=1):
        self.images, self.batch_size = images, batch_size
        self.captions = np.array([encode(a["caption"]) for a in annotations], np.int32)
        self.ready = queue.Queue(maxsize=4)
        for w in range(workers):
            threading.Thread(target=self._work, args=(seed + w,), daemon=True).start()

    def _work(self, seed):
        rng = np.random.default_rng(seed)
        while True:
            self.ready.put(self.make_batch(rng))

    def make_batch(self, rng):
        rows = rng.integers(0, len(self.images), self.batch_size)
        x = self.augment(self.images[rows], rng)
        return x, self.captions[rows]

    def augment(self, x, rng):
        x = np.roll(x, tuple(rng.integers(-2, 3, 2)), axis=(1, 2)).astype(np.float32)
        gain = rng.uniform(0.7, 1.0, (len(x), 1, 1, 1)).astype(np.float32) / 255
        return np.moveaxis(x * gain, -1, 1)

    def __iter__(self):
        while True:
            yield self.ready.get()


class Block(eqx.Module):
    self_attn: eqx.nn.MultiheadAttention
    cross_attn: eqx.nn.MultiheadAttention
    mlp: eqx.nn.MLP
    norms: list

    def __init__(self, d, key):
        a, b, c = jax.random.split(key, 3)
        self.self_attn = eqx.nn.MultiheadAttention(4, d, key=a)
        self.cross_attn = eqx.nn.MultiheadAttention(4, d, key=b)
        self.mlp = eqx.nn.MLP(d, d, 4 * d, 1, jax.nn.gelu, key=c)
        self.norms = [eqx.nn.LayerNorm(d) for _ in range(3)]

    def __call__(self, h, memory, mask):
        n = jax.vmap(self.norms[0])(h)
        h = h + self.self_attn(n, n, n, mask)
        h = h + self.cross_attn(jax.vmap(self.norms[1])(h), memory, memory)
        return h + jax.vmap(self.mlp)(jax.vmap(self.norms[2])(h))


class Captioner(eqx.Module):
    convs: list
    embed: eqx.nn.Embedding
    pos: jax.Array
    blocks: list
    head: eqx.nn.Linear

    def __init__(self, d, depth, key):
        k = jax.random.split(key, 6 + depth)
        self.convs = [eqx.nn.Conv2d(3, 32, 3, 2, 1, key=k[0]), eqx.nn.Conv2d(32, 64, 3, 2, 1, key=k[1]),
                      eqx.nn.Conv2d(64, d, 3, 1, 1, key=k[2])]
        self.embed = eqx.nn.Embedding(len(WORDS), d, key=k[3])
        self.pos = 0.02 * jax.random.normal(k[4], (MAX_LEN, d))
        self.blocks = [Block(d, kk) for kk in k[6:]]
        self.head = eqx.nn.Linear(d, len(WORDS), key=k[5])

    def __call__(self, image, tokens):
        for conv in self.convs:
            image = jax.nn.relu(conv(image))
        memory = image.reshape(image.shape[0], -1).T
        h = jax.vmap(self.embed)(tokens) + self.pos
        mask = jnp.tril(jnp.ones((MAX_LEN, MAX_LEN), bool))
        for block in self.blocks:
            h = block(h, memory, mask)
        return jax.vmap(self.head)(h)


class Trainer:
    def __init__(self, model, loader, lr=1e-3, log_every=500):
        self.tx = optax.adamw(lr)
        self.model, self.loader, self.log_every = model, iter(loader), log_every
        self.opt_state = self.tx.init(eqx.filter(model, eqx.is_inexact_array))
        self.step = eqx.filter_jit(self._step, donate="all-except-first")
        self.last = {}

    def _step(self, batch, model, opt_state):
        images, captions = batch

        @eqx.filter_value_and_grad
        def loss_fn(model):
            logits = jax.vmap(model)(images, captions[:, :-1])
            nll = optax.softmax_cross_entropy_with_integer_labels(logits, captions[:, 1:])
            live = captions[:, 1:] > 0
            return jnp.sum(nll * live) / jnp.sum(live)

        loss, grads = loss_fn(model)
        updates, opt_state = self.tx.update(grads, opt_state, eqx.filter(model, eqx.is_inexact_array))
        return eqx.apply_updates(model, updates), opt_state, loss

    def fit(self, steps):
        for i in range(1, steps + 1):
            batch = next(self.loader)
            self.model, self.opt_state, loss = self.step(batch, self.model, self.opt_state)
            if i % self.log_every == 0:
                self.last["loss"] = float(loss)
                print(f"[{i}] loss {self.last['loss']:.4f}", flush=True)
        jax.block_until_ready(eqx.filter(self.model, eqx.is_array))


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 8000
    images, annotations = make_scenes(3000)
    trainer = Trainer(Captioner(96, 2, jax.random.key(4)), Loader(images, annotations, batch_size=32))
    trainer.fit(4)
    began = time.perf_counter()
    trainer.fit(steps)
    print(f"done {steps} steps in {time.perf_counter() - began:.4f} s")


if __name__ == "__main__":
    main()
