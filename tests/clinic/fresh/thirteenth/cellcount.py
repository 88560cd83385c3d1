"""Count cells in simulated fluorescence microscopy tiles with density maps.

A small U-Net-like network maps a 64 x 64 tile to a 32 x 32 density map, whose
sum is the number of cells.  Tiles are simulated once (elliptic cells, uneven
illumination, shot noise and read-out noise), kept as uint8 and normalised on
the device.

usage: python cellcount.py [STEPS]
"""
import sys
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

TILE = 64            # pixels along the side of a tile
SUPER = 2            # supersampling of the simulated optics
MAP = TILE // 2      # side of a density map
MAX_CELLS = 16
SPREAD = 1.5         # width of one cell in the density map, in map pixels
SCALE = 50.0         # density maps are multiplied by this
N_TRAIN = 1024
N_VAL = 128
BATCH = 32
REPORT_EVERY = 50


def simulate(rng, n):
    """Returns n tiles (uint8), their density maps (float32) and cell counts."""
    counts = rng.integers(1, MAX_CELLS + 1, n)
    present = (np.arange(MAX_CELLS) < counts[:, None]).astype(np.float32)
    shape = (n, MAX_CELLS)
    cy = rng.uniform(2.0, TILE - 2.0, shape).astype(np.float32)
    cx = rng.uniform(2.0, TILE - 2.0, shape).astype(np.float32)
    long = rng.uniform(3.5, 6.0, shape).astype(np.float32)
    short = rng.uniform(2.5, 4.0, shape).astype(np.float32)
    angle = rng.uniform(0.0, np.pi, shape).astype(np.float32)
    bright = rng.uniform(25.0, 80.0, shape).astype(np.float32) * present

    axis = (np.arange(TILE * SUPER, dtype=np.float32) + 0.5) / SUPER
    photons = np.full((n, TILE * SUPER, TILE * SUPER), 14.0, np.float32)
    for k in range(MAX_CELLS):
        cell = lambda a: a[:, k, None, None]
        dy = axis[None, :, None] - cell(cy)
        dx = axis[None, None, :] - cell(cx)
        cos, sin = np.cos(cell(angle)), np.sin(cell(angle))
        u = (dx * cos + dy * sin) / cell(long)
        v = (dy * cos - dx * sin) / cell(short)
        photons += cell(bright) * np.exp(-(u * u + v * v) ** 2)
    radius2 = ((axis[:, None] - TILE / 2) ** 2 + (axis[None, :] - TILE / 2) ** 2) / TILE**2
    photons *= 1.0 - 0.5 * radius2
    photons = photons.reshape(n, TILE, SUPER, TILE, SUPER).mean(axis=(2, 4))
    noisy = rng.poisson(photons) + rng.normal(0.0, 2.0, photons.shape)
    tiles = np.clip(noisy, 0, 255).astype(np.uint8)

    grid = np.arange(MAP, dtype=np.float32) + 0.5
    gy = np.exp(-0.5 * ((grid - cy[..., None] / 2) / SPREAD) ** 2)
    gx = np.exp(-0.5 * ((grid - cx[..., None] / 2) / SPREAD) ** 2)
    gy *= present[..., None] / gy.sum(-1, keepdims=True)
    gx /= gx.sum(-1, keepdims=True)
    maps = SCALE * (gy.transpose(0, 2, 1) @ gx)
    return tiles, maps.astype(np.float32), counts


def make_pool(rng, n):
    parts = [simulate(rng, BATCH) for _ in range(n // BATCH)]
    return tuple(np.concatenate(p) for p in zip(*parts))


def space_to_depth(x):
    b, h, w = x.shape
    x = x.reshape(b, h // 2, 2, w // 2, 2).transpose(0, 1, 3, 2, 4)
    return x.reshape(b, h // 2, w // 2, 4)


def halve(x):
    b, h, w, c = x.shape
    return x.reshape(b, h // 2, 2, w // 2, 2, c).mean(axis=(2, 4))


def double(x):
    return jnp.repeat(jnp.repeat(x, 2, axis=1), 2, axis=2)


def quadrant_counts(density):
    half = MAP // 2
    return density.reshape(-1, 2, half, 2, half).sum(axis=(2, 4)).reshape(-1, 4) / SCALE


class ConvBlock(nnx.Module):
    def __init__(self, cin, cout, *, rngs):
        conv = partial(nnx.Conv, kernel_size=(3, 3), dtype=jnp.float32, rngs=rngs)
        self.first = conv(cin, cout)
        self.second = conv(cout, cout)

    def __call__(self, x):
        return nnx.relu(self.second(nnx.relu(self.first(x))))


class DensityNet(nnx.Module):
    """Two levels, one skip connection, density at half the tile's resolution."""

    def __init__(self, width=8, *, rngs):
        self.stem = nnx.Conv(4, width, kernel_size=(3, 3), rngs=rngs)
        self.fine = nnx.Conv(width, width, kernel_size=(3, 3), dtype=jnp.float32, rngs=rngs)
        self.coarse = ConvBlock(width, 2 * width, rngs=rngs)
        self.squeeze = nnx.Conv(2 * width, width, kernel_size=(1, 1), rngs=rngs)
        self.merge = nnx.Conv(2 * width, width, kernel_size=(3, 3), rngs=rngs)
        self.head = nnx.Conv(width, 1, kernel_size=(1, 1), rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.stem(space_to_depth(x)))
        skip = nnx.relu(self.fine(x))
        deep = self.squeeze(self.coarse(halve(skip)))
        x = jnp.concatenate([skip, double(deep)], axis=-1)
        x = nnx.relu(self.merge(x))
        return jax.nn.softplus(self.head(x)[..., 0] - 2.0)


class Experiment:
    def __init__(self, steps, seed=0):
        self.steps = steps
        self.rng = np.random.default_rng(seed)
        self.tiles, self.maps, self.counts = make_pool(self.rng, N_TRAIN)
        self.val_tiles, _, self.val_counts = make_pool(self.rng, N_VAL)

        # mean image (takes out the uneven illumination) and overall contrast
        self.norm = (
            jnp.asarray(self.tiles.mean(axis=0), jnp.float32),
            jnp.asarray(self.tiles.std(), jnp.float32),
        )
        self.model = DensityNet(rngs=nnx.Rngs(seed))
        schedule = optax.cosine_decay_schedule(3e-3, max(steps, 1), alpha=0.05)
        tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=1e-4))
        self.optimizer = nnx.Optimizer(self.model, tx, wrt=nnx.Param)
        self.stats = jnp.zeros(2, jnp.float32)
        self.step = nnx.jit(Experiment._train_step)
        self.predict = nnx.jit(Experiment._predict)

    @staticmethod
    def _normalise(tiles, norm):
        mean, std = norm
        return (tiles.astype(jnp.float32) - mean) / std

    @staticmethod
    def _train_step(model, optimizer, stats, norm, tiles, maps):
        x = Experiment._normalise(tiles, norm)
        truth = quadrant_counts(maps)

        def loss_fn(model):
            density = model(x)
            miss = quadrant_counts(density) - truth
            loss = jnp.mean((density - maps) ** 2) + 0.02 * jnp.mean(miss**2)
            return loss, miss

        (loss, miss), grads = nnx.value_and_grad(loss_fn, has_aux=True)(model)
        optimizer.update(model, grads)
        mae = jnp.mean(jnp.abs(miss.sum(axis=-1)))
        stats = 0.98 * stats + 0.02 * jnp.stack([loss, mae])
        return stats, jnp.abs(miss)

    @staticmethod
    def _predict(model, norm, tiles):
        density = model(Experiment._normalise(tiles, norm))
        return quadrant_counts(density).sum(axis=-1)

    def index_batches(self):
        while True:
            order = self.rng.permutation(N_TRAIN)
            for lo in range(0, N_TRAIN, BATCH):
                yield order[lo:lo + BATCH]

    def validate(self):
        predicted = np.asarray(self.predict(self.model, self.norm, self.val_tiles))
        return float(np.abs(predicted - self.val_counts).mean())

    def report(self, done, quad_err):
        loss, mae = np.asarray(self.stats)
        worst = float(np.asarray(quad_err).max())
        val = self.validate()
        print(f"step {done:5d}  loss {loss:.4f}  count error {mae:.3f}  "
              f"worst quadrant {worst:.2f}  held-out {val:.3f}", flush=True)

    def train(self):
        warm = self.steps // 4
        batches = self.index_batches()
        print(f"untrained: held-out count error {self.validate():.3f}", flush=True)
        start = time.perf_counter()
        for step in range(self.steps):
            if step == warm:
                jax.block_until_ready(self.stats)
                start = time.perf_counter()
            idx = next(batches)
            self.stats, quad_err = self.step(
                self.model, self.optimizer, self.stats, self.norm, self.tiles[idx], self.maps[idx])
            if (step + 1) % REPORT_EVERY == 0:
                self.report(step + 1, quad_err)
        jax.block_until_ready(self.stats)
        return self.steps - warm, time.perf_counter() - start

    def summary(self):
        print(f"final held-out count error {self.validate():.3f} "
              f"at {self.val_counts.mean():.1f} cells a tile")


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 3600
    experiment = Experiment(steps)
    n, seconds = experiment.train()
    experiment.summary()
    print(f"done {n} steps in {seconds:.3f} s")


if __name__ == "__main__":
    main()
