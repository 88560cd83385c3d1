"""Classify pen trajectories (handwritten signs) with a small transformer, flax.linen.

Each sample is a sequence of points (dx, dy, pen, direction); a Trainer calls callbacks.
Usage: python pen_former.py [STEPS]
"""
import pickle
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import jax
import jax.numpy as jnp
import flax.linen as nn
import optax
from flax.training import train_state

HYPER = dict(classes=26, points=40, width=64, batch=32, lr=1e-3, samples=6000, seed=3)


class StrokeSet:
    """Synthetic glyphs: a closed Fourier curve for each class, drawn by shaky writers."""

    def __init__(self, hp, train=True):
        rng = np.random.default_rng(hp["seed"])
        coef = rng.normal(0, 1, (hp["classes"], 2, 2, 5)) / np.arange(1, 6)
        lift = rng.uniform(0.3, 0.9, hp["classes"])
        rng = np.random.default_rng(hp["seed"] + 100 + train)
        n = hp["samples"] if train else 480
        self.rng = rng
        self.label = rng.integers(0, hp["classes"], n).astype(np.int32)
        speed = rng.uniform(0.7, 1.4, (n, 1))
        t = 2 * np.pi * np.linspace(0, 1, hp["points"] + 1) ** speed
        phase = t[:, None, :] * np.arange(1, 6)[:, None]
        c = coef[self.label] + rng.normal(0, 0.08, (n, 2, 2, 5))
        xy = np.einsum("ndk,nkt->ntd", c[:, :, 0], np.sin(phase))
        xy += np.einsum("ndk,nkt->ntd", c[:, :, 1], np.cos(phase))
        self.xy = (xy + rng.normal(0, 0.01, xy.shape)).astype(np.float32)
        pos = np.linspace(0, 1, hp["points"])
        self.pen = (np.abs(pos - lift[self.label][:, None]) < 0.03).astype(np.float32)

    def features(self, xy, pen):
        d = np.diff(xy, axis=1)
        step = np.sqrt((d ** 2).sum(-1, keepdims=True)) + 1e-6
        out = np.concatenate([d * 8, pen[..., None], d / step], -1)
        return out.astype(np.float32)

    def augment(self, xy):
        """Slant and scale a whole batch at once."""
        n = len(xy)
        a = self.rng.normal(0, 0.15, n).astype(np.float32)
        s = self.rng.uniform(0.85, 1.15, (n, 1, 1)).astype(np.float32)
        rot = np.stack([np.cos(a), -np.sin(a), np.sin(a), np.cos(a)], -1).reshape(n, 2, 2)
        return (xy @ rot) * s

    def batches(self, size):
        while True:
            pick = self.rng.integers(0, len(self.label), size)
            xy = self.augment(self.xy[pick])
            yield self.features(xy, self.pen[pick]), self.label[pick]


class Block(nn.Module):
    width: int
    heads: int

    @nn.compact
    def __call__(self, x):
        h = nn.LayerNorm()(x)
        x = x + nn.MultiHeadDotProductAttention(num_heads=self.heads)(h, h)
        h = nn.LayerNorm()(x)
        h = nn.gelu(nn.Dense(2 * self.width)(h))
        return x + nn.Dense(self.width)(h)


class PenFormer(nn.Module):
    classes: int
    width: int
    heads: int = 4
    depth: int = 2

    @nn.compact
    def __call__(self, x):
        place = self.param("place", nn.initializers.normal(0.02), (x.shape[1], self.width))
        x = nn.Dense(self.width)(x) + place
        for _ in range(self.depth):
            x = Block(self.width, self.heads)(x)
        x = nn.LayerNorm()(x).mean(1)
        return nn.Dense(self.classes)(x)


class Callback:
    def on_step(self, trainer, step, metrics):
        pass


class LogLine(Callback):
    def on_step(self, trainer, step, metrics):
        if step % 50 == 0:
            m = jax.device_get(metrics)
            print(f"step {step} loss {m['loss']:.3f} acc {m['acc']:.2f}")


class Validate(Callback):
    def __init__(self, data, every=250):
        self.batch = next(data.batches(240))
        self.every = every

    def on_step(self, trainer, step, metrics):
        if step % self.every == 0:
            acc = trainer.evaluate(trainer.state.params, *self.batch)
            print(f"step {step} validation accuracy {float(acc):.3f}")


class Checkpoint(Callback):
    def __init__(self, every=1000):
        self.dir = Path(tempfile.mkdtemp(prefix="penformer_"))
        self.every = every

    def on_step(self, trainer, step, metrics):
        if step % self.every == 0:
            blob = pickle.dumps(jax.device_get(trainer.state.params))
            (self.dir / "last.pkl").write_bytes(blob)


class Trainer:
    def __init__(self, hp, callbacks):
        self.hp, self.callbacks = hp, callbacks
        model = PenFormer(hp["classes"], hp["width"])
        sample = jnp.zeros((1, hp["points"], 5))
        params = model.init(jax.random.key(hp["seed"]), sample)["params"]
        rate = optax.warmup_cosine_decay_schedule(0.0, hp["lr"], 200, 20000)
        tx = optax.adamw(rate, weight_decay=1e-3)
        self.state = train_state.TrainState.create(apply_fn=model.apply, params=params, tx=tx)

        def train_step(state, x, y):
            def loss_fn(p):
                logits = state.apply_fn({"params": p}, x)
                loss = optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()
                return loss, (logits.argmax(-1) == y).mean()
            (loss, acc), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
            return state.apply_gradients(grads=grads), {"loss": loss, "acc": acc}

        self.train_step = jax.jit(train_step, donate_argnums=0)
        self.evaluate = jax.jit(
            lambda p, x, y: (model.apply({"params": p}, x).argmax(-1) == y).mean())

    def fit(self, batches, steps):
        warm = min(8, steps // 4)
        start = time.perf_counter()
        for step in range(1, steps + 1):
            x, y = next(batches)
            self.state, metrics = self.train_step(self.state, x, y)
            for cb in self.callbacks:
                cb.on_step(self, step, metrics)
            if step == warm:
                jax.block_until_ready(self.state)
                start = time.perf_counter()
        jax.block_until_ready(self.state)
        return steps - warm, time.perf_counter() - start


if __name__ == "__main__":
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 9000
    train = StrokeSet(HYPER)
    trainer = Trainer(HYPER, [LogLine(), Validate(StrokeSet(HYPER, train=False)), Checkpoint()])
    n, seconds = trainer.fit(train.batches(HYPER["batch"]), steps)
    print(f"done {n} steps in {seconds:.3f} s")
