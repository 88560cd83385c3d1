"""Inpainting of small synthetic pictures: a CNN in flax.linen with EMA weights."""
import io
import os
import queue
import sys
import tempfile
import threading
import time

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import serialization, struct
from PIL import Image

SIZE = 32
FULL = 40


def draw_picture(rng):
    """Uint8 picture of FULL x FULL: a colour ramp, discs and bars."""
    yy, xx = np.mgrid[0:FULL, 0:FULL] / FULL
    a, b = rng.random(3), rng.random(3)
    img = a + (b - a) * (xx * rng.random() + yy * rng.random())[..., None]
    for _ in range(3):
        cx, cy, r = rng.random(), rng.random(), 0.08 + 0.2 * rng.random()
        img[(xx - cx) ** 2 + (yy - cy) ** 2 < r * r] = rng.random(3)
    x0 = int(rng.integers(0, FULL - 4))
    img[:, x0 : x0 + 3] = rng.random(3)
    return (255 * np.clip(img, 0, 1)).astype(np.uint8)


class Pictures:
    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        self.pngs = []
        for _ in range(count):
            buf = io.BytesIO()
            Image.fromarray(draw_picture(rng)).save(buf, format="PNG")
            self.pngs.append(buf.getvalue())
        self.cache = np.stack([self.decode(i) for i in range(count)])

    def decode(self, i):
        return np.asarray(Image.open(io.BytesIO(self.pngs[i])).convert("RGB"))

    def pick(self, idx):
        return self.cache[idx]

    def __len__(self):
        return len(self.pngs)


class Loader:
    """Crops and flips in a thread, a few batches ahead."""

    def __init__(self, pictures, batch, seed=5, workers=1):
        self.pictures, self.batch = pictures, batch
        self.ready = queue.Queue(maxsize=4)
        for k in range(workers):
            rng = np.random.default_rng(seed + k)
            threading.Thread(target=self.work, args=(rng,), daemon=True).start()

    def make(self, rng):
        idx = rng.integers(0, len(self.pictures), size=self.batch)
        img = self.pictures.pick(idx)
        y, x = rng.integers(0, FULL - SIZE, size=2)
        img = img[:, y : y + SIZE, x : x + SIZE]
        if rng.random() < 0.5:
            img = img[:, :, ::-1]
        return np.ascontiguousarray(img)

    def work(self, rng):
        while True:
            self.ready.put(self.make(rng))

    def __iter__(self):
        while True:
            yield self.ready.get()


class Block(nn.Module):
    width: int
    dilation: int

    @nn.compact
    def __call__(self, x):
        h = nn.Conv(self.width, (3, 3), kernel_dilation=(self.dilation,) * 2)(nn.gelu(x))
        h = nn.Conv(self.width, (1, 1))(nn.gelu(h))
        return x + h


class Inpainter(nn.Module):
    width: int = 16

    @nn.compact
    def __call__(self, img, mask):
        x = jnp.concatenate([img * mask, mask], axis=-1)
        x = nn.Conv(self.width, (4, 4), strides=(2, 2))(x)
        for dilation in (1, 2, 4):
            x = Block(self.width, dilation)(x)
        x = nn.Conv(3 * 4, (3, 3))(nn.gelu(x))
        n, h, w, _ = x.shape
        x = x.reshape(n, h, w, 2, 2, 3).transpose(0, 1, 3, 2, 4, 5)
        return x.reshape(n, 2 * h, 2 * w, 3)


class State(struct.PyTreeNode):
    params: dict
    ema: dict
    opt: tuple
    key: jax.Array


def random_masks(key, n):
    """One where the picture is known; a rectangle of each picture is cut out."""
    k1, k2 = jax.random.split(key)
    corner = jax.random.randint(k1, (n, 2), 2, SIZE // 2)
    extent = jax.random.randint(k2, (n, 2), 6, 14)
    r = jnp.arange(SIZE)
    inside = (r >= corner[..., None]) & (r < (corner + extent)[..., None])
    hole = inside[:, 0, :, None] & inside[:, 1, None, :]
    return 1.0 - hole[..., None].astype(jnp.float32)


class Trainer:
    def __init__(self, batch=32, decay=0.995):
        self.model = Inpainter()
        self.tx = optax.adam(optax.cosine_decay_schedule(2e-3, 20_000))
        self.decay = decay
        self.loader = Loader(Pictures(1500, seed=1), batch)
        self.callbacks = []
        self.step_fn = jax.jit(self.step, donate_argnums=0)

    def init(self):
        key, sub = jax.random.split(jax.random.PRNGKey(0))
        params = self.model.init(sub, jnp.zeros((1, SIZE, SIZE, 3)), jnp.ones((1, SIZE, SIZE, 1)))
        ema = jax.tree.map(jnp.copy, params)
        return State(params=params, ema=ema, opt=self.tx.init(params), key=key)

    def loss(self, params, img, mask):
        out = self.model.apply(params, img, mask)
        err = jnp.abs(out - img)
        return jnp.mean(err * (1 - mask)) * 6.0 + jnp.mean(err * mask)

    def step(self, state, raw):
        key, sub = jax.random.split(state.key)
        img = raw.astype(jnp.float32) / 127.5 - 1.0
        mask = random_masks(sub, img.shape[0])
        loss, grads = jax.value_and_grad(self.loss)(state.params, img, mask)
        delta, opt = self.tx.update(grads, state.opt, state.params)
        params = optax.apply_updates(state.params, delta)
        ema = jax.tree.map(lambda e, p: self.decay * e + (1 - self.decay) * p, state.ema, params)
        return state.replace(params=params, ema=ema, opt=opt, key=key), loss

    def fit(self, steps, warm=5):
        state = self.init()
        stream = iter(self.loader)
        for n in range(steps):
            if n == warm:
                jax.block_until_ready(state)
                start = time.perf_counter()
            state, loss = self.step_fn(state, next(stream))
            for call in self.callbacks:
                call(n, state, loss)
        jax.block_until_ready(state)
        return steps - warm, time.perf_counter() - start


def log_loss(n, state, loss):
    if n % 50 == 0:
        print(f"step {n} loss {float(loss):.4f}", flush=True)


def checkpoint_to(folder, every=400):
    def call(n, state, loss):
        if n and n % every == 0:
            with open(os.path.join(folder, "ema.msgpack"), "wb") as f:
                f.write(serialization.to_bytes(state.ema))
    return call


if __name__ == "__main__":
    total = int(sys.argv[1]) if len(sys.argv) > 1 else 10000
    with tempfile.TemporaryDirectory(prefix="inpaint_") as tmp:
        trainer = Trainer()
        trainer.callbacks += [log_loss, checkpoint_to(tmp)]
        count, seconds = trainer.fit(total)
    print(f"done {count} steps in {seconds:.3f} s", flush=True)
