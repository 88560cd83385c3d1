"""DDPM on 16x16 toy sprites, flax nnx, EMA of the weights for sampling.

    python pixel_ddpm.py [STEPS]
"""
import dataclasses
import math
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx


@dataclasses.dataclass(frozen=True)
class Config:
    size: int = 16
    width: int = 32
    batch: int = 96
    timesteps: int = 400
    lr: float = 3e-4
    ema_decay: float = 0.995
    log_every: int = 500
    warmup: int = 5


def make_sprites(n, size, seed=0):
    """Coloured ellipses on a gradient, uint8 NHWC."""
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[0:size, 0:size].astype(np.float32) / size
    c = rng.uniform(0.25, 0.75, (n, 2, 1, 1)).astype(np.float32)
    r = rng.uniform(0.1, 0.35, (n, 2, 1, 1)).astype(np.float32)
    inside = ((yy - c[:, :1, 0]) / r[:, :1, 0]) ** 2 + ((xx - c[:, 1:, 0]) / r[:, 1:, 0]) ** 2 < 1
    fg = rng.integers(60, 256, (n, 1, 1, 3))
    bg = (xx[None, :, :, None] * rng.integers(0, 120, (n, 1, 1, 3)))
    return np.where(inside[..., None], fg, bg).astype(np.uint8)


def batches(sprites, cfg, seed=1):
    rng = np.random.default_rng(seed)
    while True:
        picked = sprites[rng.integers(0, len(sprites), cfg.batch)]
        if rng.random() < 0.5:
            picked = picked[:, :, ::-1]
        yield picked


class TimeEmbed(nnx.Module):
    def __init__(self, dim, rngs):
        self.dim = dim
        self.lin = nnx.Linear(dim, dim, rngs=rngs)

    def __call__(self, t):
        freq = jnp.exp(-math.log(1e4) * jnp.arange(self.dim // 2) / (self.dim // 2))
        ang = t[:, None] * freq[None]
        return nnx.silu(self.lin(jnp.concatenate([jnp.sin(ang), jnp.cos(ang)], -1)))


class ResBlock(nnx.Module):
    def __init__(self, cin, cout, tdim, rngs):
        self.norm1 = nnx.GroupNorm(cin, num_groups=8, rngs=rngs)
        self.conv1 = nnx.Conv(cin, cout, (3, 3), rngs=rngs)
        self.temb = nnx.Linear(tdim, cout, rngs=rngs)
        self.norm2 = nnx.GroupNorm(cout, num_groups=8, rngs=rngs)
        self.conv2 = nnx.Conv(cout, cout, (3, 3), rngs=rngs)
        self.skip = nnx.Linear(cin, cout, rngs=rngs)

    def __call__(self, x, t):
        h = self.conv1(nnx.silu(self.norm1(x)))
        h = h + self.temb(t)[:, None, None, :]
        return self.skip(x) + self.conv2(nnx.silu(self.norm2(h)))


class TinyUNet(nnx.Module):
    def __init__(self, width, rngs):
        w = width
        self.time = TimeEmbed(2 * w, rngs)
        self.stem = nnx.Conv(3, w, (3, 3), strides=(2, 2), rngs=rngs)
        self.down1 = ResBlock(w, w, 2 * w, rngs)
        self.down2 = ResBlock(w, 2 * w, 2 * w, rngs)
        self.up1 = ResBlock(3 * w, w, 2 * w, rngs)
        self.out = nnx.Linear(w, 12, rngs=rngs)

    def __call__(self, x, t):
        t = self.time(t)
        a = self.down1(self.stem(x), t)
        b = self.down2(nnx.avg_pool(a, (2, 2), (2, 2)), t)
        b = jnp.repeat(jnp.repeat(b, 2, 1), 2, 2)
        y = self.out(self.up1(jnp.concatenate([a, b], -1), t))
        n, h, w, _ = y.shape
        return y.reshape(n, h, w, 2, 2, 3).transpose(0, 1, 3, 2, 4, 5).reshape(n, 2 * h, 2 * w, 3)


class Trainer:
    def __init__(self, cfg: Config):
        self.cfg = cfg
        model = TinyUNet(cfg.width, nnx.Rngs(0))
        self.graphdef, self.params = nnx.split(model, nnx.Param)
        self.ema = jax.tree.map(jnp.copy, self.params)
        self.tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(cfg.lr))
        self.opt = self.tx.init(self.params)
        betas = jnp.linspace(1e-4, 0.02, cfg.timesteps)
        self.abar = jnp.cumprod(1.0 - betas)
        self.key = jax.random.key(7)
        self._step = jax.jit(self._train_step, donate_argnums=(0, 1, 2, 3))

    def _loss(self, params, images, key):
        kt, kn = jax.random.split(key)
        x0 = images / 127.5 - 1.0
        t = jax.random.randint(kt, (x0.shape[0],), 0, self.cfg.timesteps)
        ab = self.abar[t][:, None, None, None]
        noise = jax.random.normal(kn, x0.shape, x0.dtype)
        xt = jnp.sqrt(ab) * x0 + jnp.sqrt(1 - ab) * noise
        eps = nnx.merge(self.graphdef, params)(xt, t)
        return jnp.mean((eps - noise) ** 2)

    def _train_step(self, params, opt, ema, key, images):
        key, sub = jax.random.split(key)
        loss, grads = jax.value_and_grad(self._loss)(params, images, sub)
        updates, opt = self.tx.update(grads, opt, params)
        params = optax.apply_updates(params, updates)
        d = self.cfg.ema_decay
        ema = jax.tree.map(lambda e, p: d * e + (1 - d) * p, ema, params)
        return params, opt, ema, key, loss

    def step(self, images):
        self.params, self.opt, self.ema, self.key, loss = self._step(
            self.params, self.opt, self.ema, self.key, images)
        return loss


def main():
    cfg = Config()
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 6000
    sprites = make_sprites(8000, cfg.size)
    feed = batches(sprites, cfg)
    trainer = Trainer(cfg)
    for _ in range(cfg.warmup):
        loss = trainer.step(next(feed))
    jax.block_until_ready(loss)

    t0 = time.perf_counter()
    for i in range(1, steps + 1):
        loss = trainer.step(next(feed))
        if i % cfg.log_every == 0:
            print(f"step {i}  eps-mse {float(loss):.4f}")
    jax.block_until_ready((trainer.params, loss))
    print(f"done {steps} steps in {time.perf_counter() - t0:.4f} s")


if __name__ == "__main__":
    main()
