"""VQ autoencoder for small texture tiles (flax nnx), EMA codebook.

    python tile_vq.py [STEPS]
"""
import queue
import sys
import threading
import time
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx


@dataclass
class Config:
    batch: int = 24
    size: int = 32
    width: int = 48
    code_dim: int = 24
    codes: int = 256
    lr: float = 4e-4
    beta: float = 0.25
    decay: float = 0.99
    pool: int = 3000
    seed: int = 3


class ResBlock(nnx.Module):
    def __init__(self, ch, rngs):
        self.a = nnx.Conv(ch, ch, (3, 3), rngs=rngs)
        self.b = nnx.Conv(ch, ch, (1, 1), rngs=rngs)

    def __call__(self, x):
        return x + self.b(nnx.relu(self.a(nnx.relu(x))))


class TileVQ(nnx.Module):
    def __init__(self, cfg, rngs):
        w, d = cfg.width, cfg.code_dim
        self.down1 = nnx.Conv(3, w // 2, (4, 4), strides=2, rngs=rngs)
        self.down2 = nnx.Conv(w // 2, w, (4, 4), strides=2, rngs=rngs)
        self.enc = ResBlock(w, rngs)
        self.to_code = nnx.Conv(w, d, (1, 1), rngs=rngs)
        self.from_code = nnx.Conv(d, w, (3, 3), rngs=rngs)
        self.dec = ResBlock(w, rngs)
        self.up1 = nnx.ConvTranspose(w, w // 2, (4, 4), strides=(2, 2), rngs=rngs)
        self.up2 = nnx.ConvTranspose(w // 2, 3, (4, 4), strides=(2, 2), rngs=rngs)

    def encode(self, x):
        h = nnx.relu(self.down2(nnx.relu(self.down1(x))))
        return self.to_code(self.enc(h))

    def decode(self, q):
        h = nnx.relu(self.dec(self.from_code(q)))
        return self.up2(nnx.relu(self.up1(h)))


def nearest_code(flat, book):
    d2 = jnp.sum(book**2, axis=1) - 2.0 * flat @ book.T
    return jnp.argmin(d2, axis=1)


def make_tiles(cfg):
    rng = np.random.default_rng(cfg.seed)
    yy, xx = np.mgrid[0 : cfg.size, 0 : cfg.size] / cfg.size
    f = rng.uniform(1, 9, (cfg.pool, 2, 1, 1))
    ph = rng.uniform(0, 6.3, (cfg.pool, 1, 1))
    wave = np.sin(6.3 * (f[:, 0] * xx + f[:, 1] * yy) + ph)
    tint = rng.uniform(40, 120, (cfg.pool, 1, 1, 3))
    return np.clip(128 + tint * wave[..., None], 0, 255).astype(np.uint8)


def augment(tile, rng):
    if rng.random() < 0.5:
        tile = tile[:, ::-1]
    if rng.random() < 0.5:
        tile = tile[::-1]
    return tile


def batches(tiles, cfg):
    rng = np.random.default_rng(cfg.seed + 1)
    while True:
        pick = rng.integers(0, len(tiles), cfg.batch)
        yield np.stack([augment(tiles[i], rng) for i in pick])


def prefetch(it, depth=3):
    q = queue.Queue(depth)

    def work():
        for item in it:
            q.put(item)

    threading.Thread(target=work, daemon=True).start()
    while True:
        yield q.get()


def build(cfg):
    graph, params = nnx.split(TileVQ(cfg, nnx.Rngs(cfg.seed)))
    tx = optax.adamw(cfg.lr)
    book = jax.random.normal(jax.random.key(9), (cfg.codes, cfg.code_dim)) * 0.1
    state = dict(params=params, opt=tx.init(params), book=book,
                 count=jnp.ones(cfg.codes), total=book * 1.0)

    def loss_fn(params, book, x):
        model = nnx.merge(graph, params)
        z = model.encode(x)
        flat = z.reshape(-1, cfg.code_dim)
        idx = nearest_code(jax.lax.stop_gradient(flat), book)
        q = book[idx].reshape(z.shape)
        rec = model.decode(z + jax.lax.stop_gradient(q - z))
        loss = jnp.mean((rec - x) ** 2) + cfg.beta * jnp.mean((z - q) ** 2)
        return loss, (flat, idx)

    def train_step(state, images):
        x = images.astype(jnp.float32) / 127.5 - 1.0
        (loss, (flat, idx)), grads = jax.value_and_grad(loss_fn, has_aux=True)(
            state["params"], state["book"], x)
        upd, opt = tx.update(grads, state["opt"], state["params"])
        params = optax.apply_updates(state["params"], upd)
        hits = jnp.zeros(cfg.codes).at[idx].add(1.0)
        sums = jnp.zeros_like(state["total"]).at[idx].add(flat)
        count = cfg.decay * state["count"] + (1 - cfg.decay) * hits
        total = cfg.decay * state["total"] + (1 - cfg.decay) * sums
        book = total / (count[:, None] + 1e-5)
        return dict(params=params, opt=opt, book=book, count=count, total=total), loss

    return state, jax.jit(train_step, donate_argnums=0)


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 6000
    cfg = Config()
    state, step = build(cfg)
    feed = prefetch(batches(make_tiles(cfg), cfg))
    for _ in range(5):
        state, loss = step(state, next(feed))
    jax.block_until_ready(state)
    t0 = time.perf_counter()
    for i in range(1, steps + 1):
        state, loss = step(state, next(feed))
        if i % 500 == 0:
            print(f"{i:6d} loss {float(loss):.4f}", flush=True)
    jax.block_until_ready((state, loss))
    print(f"done {steps} steps in {time.perf_counter() - t0:.4f} s")


if __name__ == "__main__":
    main()
