"""Image classifier: flax.linen CNN with batch norm, TrainState, and a Trainer class."""
import sys
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training import train_state


@dataclass(frozen=True)
class Config:
    image_size: int = 24
    classes: int = 8
    n_train: int = 4096
    batch_size: int = 64
    lr: float = 2e-3
    weight_decay: float = 1e-4
    log_every: int = 500
    seed: int = 0


def make_leaves(cfg):
    """Coloured blobs with class-dependent lobes, as uint8 images."""
    rng = np.random.default_rng(cfg.seed)
    labels = rng.integers(cfg.classes, size=cfg.n_train)
    yy, xx = np.mgrid[-1:1:cfg.image_size * 1j, -1:1:cfg.image_size * 1j]
    angle, radius = np.arctan2(yy, xx), np.hypot(yy, xx)
    phase = rng.uniform(0, 2 * np.pi, (cfg.n_train, 1, 1))
    edge = 0.55 + 0.25 * np.cos((labels[:, None, None] + 2) * angle + phase)
    shape = (radius < edge).astype(np.float32)
    colour = rng.uniform(0.3, 1.0, (cfg.n_train, 1, 1, 3))
    images = shape[..., None] * colour + rng.normal(0, 0.1, shape.shape + (3,))
    return (np.clip(images, 0, 1) * 255).astype(np.uint8), labels.astype(np.int32)


class ConvBlock(nn.Module):
    features: int

    @nn.compact
    def __call__(self, x, train):
        x = nn.Conv(self.features, (3, 3), use_bias=False)(x)
        x = nn.BatchNorm(use_running_average=not train, momentum=0.9)(x)
        return nn.relu(x)


class LeafNet(nn.Module):
    classes: int

    @nn.compact
    def __call__(self, x, train):
        for features in (16, 32, 32):
            x = ConvBlock(features)(x, train)
            x = nn.max_pool(x, (2, 2), strides=(2, 2))
        x = x.reshape(x.shape[0], -1)
        x = nn.relu(nn.Dense(64)(x))
        return nn.Dense(self.classes)(x)


class TrainState(train_state.TrainState):
    batch_stats: Any


def prepare(images, key):
    """Scale to [-1, 1] and flip half of the images."""
    x = images.astype(jnp.float32) / 127.5 - 1.0
    flip = jax.random.bernoulli(key, 0.5, (x.shape[0], 1, 1, 1))
    return jnp.where(flip, x[:, :, ::-1], x)


@partial(jax.jit, donate_argnums=0)
def train_step(state, images, labels, seed):
    x = prepare(images, jax.random.fold_in(jax.random.key(seed), state.step))

    def loss_fn(params):
        logits, mutated = state.apply_fn(
            {"params": params, "batch_stats": state.batch_stats}, x, True,
            mutable=["batch_stats"])
        loss = optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
        return loss, (logits, mutated["batch_stats"])

    (loss, (logits, stats)), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
    state = state.apply_gradients(grads=grads, batch_stats=stats)
    return state, {"loss": loss, "accuracy": (logits.argmax(-1) == labels).mean()}


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        self.rng = np.random.default_rng(cfg.seed + 1)
        self.images, self.labels = make_leaves(cfg)
        model = LeafNet(cfg.classes)
        variables = model.init(jax.random.key(cfg.seed), self.first_batch(), False)
        self.state = TrainState.create(
            apply_fn=model.apply,
            params=variables["params"],
            batch_stats=variables["batch_stats"],
            tx=optax.adamw(cfg.lr, weight_decay=cfg.weight_decay))
        self.history = []

    def first_batch(self):
        return jnp.zeros((1, self.cfg.image_size, self.cfg.image_size, 3))

    def batches(self):
        n, b = self.cfg.n_train, self.cfg.batch_size
        while True:
            order = self.rng.permutation(n)
            for i in range(0, n - b + 1, b):
                idx = order[i:i + b]
                yield self.images[idx], self.labels[idx]

    def log(self, step, metrics):
        row = {k: float(v) for k, v in metrics.items()}
        self.history.append(row)
        print(f"step {step} loss {row['loss']:.4f} acc {row['accuracy']:.3f}", flush=True)

    def fit(self, steps):
        batches = self.batches()
        for step in range(steps + 3):
            if step == 3:
                jax.block_until_ready(self.state)
                start = time.perf_counter()
            images, labels = next(batches)
            self.state, metrics = train_step(self.state, images, labels, self.cfg.seed)
            if step % self.cfg.log_every == 0:
                self.log(step, metrics)
        jax.block_until_ready(self.state)
        print(f"done {steps} steps in {time.perf_counter() - start:.3f} s")


if __name__ == "__main__":
    Trainer(Config()).fit(int(sys.argv[1]) if len(sys.argv) > 1 else 6000)
