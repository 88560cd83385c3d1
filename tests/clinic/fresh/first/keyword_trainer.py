"""Keyword spotting: a small CNN on log-mel features of one-second clips.

    python healthy.py [STEPS]
"""
from __future__ import annotations

import math
import sys
import time
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax

WARMUP = 10


@dataclass(frozen=True)
class Config:
    steps: int = 15000
    batch_size: int = 48
    n_clips: int = 3000
    n_classes: int = 12
    sample_rate: int = 8000
    window: int = 256
    hop: int = 160
    n_mels: int = 40
    channels: tuple[int, ...] = (16, 24, 32, 32)
    strides: tuple[int, ...] = (2, 2, 2, 1)
    learning_rate: float = 2e-3
    weight_decay: float = 1e-4
    smoothing: float = 0.2
    ema_decay: float = 0.999
    log_every: int = 50
    seed: int = 0


# --------------------------------------------------------------------- data


def synthesise(cfg: Config, rng: np.random.Generator):
    """Chirps with a class dependent start, slope and second harmonic."""
    labels = rng.integers(cfg.n_classes, size=cfg.n_clips).astype(np.int32)
    t = np.arange(cfg.sample_rate, dtype=np.float32) / cfg.sample_rate
    waves = np.empty((cfg.n_clips, cfg.sample_rate), np.int16)
    for i, label in enumerate(labels):
        start = 300.0 + 120.0 * label + rng.normal(0, 30)
        slope = (-1) ** label * (80.0 + 40.0 * label) + rng.normal(0, 15)
        phase = 2 * np.pi * (start * t + 0.5 * slope * t * t)
        wave = np.sin(phase) + 0.4 * np.sin(2 * phase + label)
        wave *= np.exp(-((t - rng.uniform(0.35, 0.65)) ** 2) / 0.06)
        wave += 0.05 * rng.standard_normal(cfg.sample_rate, dtype=np.float32)
        waves[i] = np.clip(wave / 1.6, -1, 1) * 32767
    return waves, labels


def mel_filters(cfg: Config) -> np.ndarray:
    bins = cfg.window // 2 + 1
    top = 2595.0 * math.log10(1 + cfg.sample_rate / 2 / 700.0)
    mels = np.linspace(0.0, top, cfg.n_mels + 2)
    centres = 700.0 * (10 ** (mels / 2595.0) - 1) / (cfg.sample_rate / 2) * (bins - 1)
    k = np.arange(bins)[:, None]
    left, mid, right = centres[:-2], centres[1:-1], centres[2:]
    rising = (k - left) / np.maximum(mid - left, 1e-3)
    falling = (right - k) / np.maximum(right - mid, 1e-3)
    return np.clip(np.minimum(rising, falling), 0.0, None).astype(np.float32)


class KeywordClips:
    """Synthetic spoken commands, held in memory."""

    def __init__(self, cfg: Config):
        self.cfg = cfg
        self.rng = np.random.default_rng(cfg.seed)
        self.filters = mel_filters(cfg)
        self.hann = np.hanning(cfg.window).astype(np.float32)
        waves, self.labels = synthesise(cfg, self.rng)
        self.features = np.stack([self.log_mel(w) for w in waves])

    def __len__(self) -> int:
        return len(self.labels)

    def log_mel(self, wave: np.ndarray) -> np.ndarray:
        wave = wave.astype(np.float32) / 32768.0
        frames = np.lib.stride_tricks.sliding_window_view(wave, self.cfg.window)
        frames = frames[:: self.cfg.hop] * self.hann
        power = np.abs(np.fft.rfft(frames, axis=-1)).astype(np.float32) ** 2
        return (np.log(power @ self.filters + 1e-5) + 5.0) / 4.0

    def batch(self, indices: np.ndarray):
        return self.features[indices], self.labels[indices]

    def batches(self):
        size = self.cfg.batch_size
        while True:
            order = self.rng.permutation(len(self))
            for i in range(0, len(order) - size + 1, size):
                yield self.batch(order[i : i + size])


# -------------------------------------------------------------------- model


def init_params(key, cfg: Config):
    channels = (1, *cfg.channels)
    keys = jax.random.split(key, len(cfg.channels) + 1)
    params = {}
    for i, (cin, cout) in enumerate(zip(channels[:-1], channels[1:])):
        scale = math.sqrt(2.0 / (9 * cin))
        params[f"conv{i}"] = {
            "w": jax.random.normal(keys[i], (3, 3, cin, cout)) * scale,
            "scale": jnp.ones((cout,)),
            "bias": jnp.zeros((cout,)),
        }
    width = cfg.channels[-1]
    params["head"] = {
        "w": jax.random.normal(keys[-1], (width, cfg.n_classes)) / math.sqrt(width),
        "b": jnp.zeros((cfg.n_classes,)),
    }
    return params


def forward(params, x, cfg: Config):
    x = x[..., None]
    for i, stride in enumerate(cfg.strides):
        layer = params[f"conv{i}"]
        x = jax.lax.conv_general_dilated(
            x,
            layer["w"],
            window_strides=(stride, stride),
            padding="SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        mean = x.mean(axis=-1, keepdims=True)
        var = x.var(axis=-1, keepdims=True)
        x = (x - mean) * jax.lax.rsqrt(var + 1e-5) * layer["scale"] + layer["bias"]
        x = jax.nn.relu(x)
    x = x.mean(axis=(1, 2))
    return x @ params["head"]["w"] + params["head"]["b"]


# ------------------------------------------------------------------ trainer


class Callback:
    def on_step_end(self, trainer: "Trainer", step: int, metrics: dict) -> None: ...


class LossLogger(Callback):
    def __init__(self, every: int):
        self.every = every

    def on_step_end(self, trainer, step, metrics):
        if step % self.every == 0:
            print(f"step {step}  loss {float(metrics['loss']):.4f}  acc {float(metrics['acc']):.3f}", flush=True)


class WallClock(Callback):
    """Starts the clock once compilation and the first steps are over."""

    def __init__(self, after: int):
        self.after = after
        self.start = None

    def on_step_end(self, trainer, step, metrics):
        if step == self.after:
            jax.block_until_ready(trainer.state)
            self.start = time.perf_counter()

    def elapsed(self, trainer) -> float:
        jax.block_until_ready(trainer.state)
        return time.perf_counter() - self.start


class Trainer:
    def __init__(self, cfg: Config, data: KeywordClips, callbacks: list[Callback]):
        self.cfg = cfg
        self.data = data
        self.callbacks = callbacks
        self.tx = optax.chain(
            optax.clip_by_global_norm(1.0),
            optax.adamw(cfg.learning_rate, weight_decay=cfg.weight_decay),
        )
        params = init_params(jax.random.key(cfg.seed), cfg)
        self.state = {
            "params": params,
            "opt": self.tx.init(params),
            "ema": jax.tree.map(jnp.copy, params),
        }

    def smoothing(self, step: int) -> float:
        return self.cfg.smoothing * 0.99 ** (step // 40)

    def loss(self, params, x, y, smoothing):
        logits = forward(params, x, self.cfg)
        targets = optax.smooth_labels(jax.nn.one_hot(y, self.cfg.n_classes), smoothing)
        loss = optax.softmax_cross_entropy(logits, targets).mean()
        acc = (logits.argmax(-1) == y).mean()
        return loss, acc

    @partial(jax.jit, static_argnums=0, donate_argnums=1)
    def train_step(self, state, x, y, smoothing):
        (loss, acc), grads = jax.value_and_grad(self.loss, has_aux=True)(state["params"], x, y, smoothing)
        updates, opt = self.tx.update(grads, state["opt"], state["params"])
        params = optax.apply_updates(state["params"], updates)
        ema = optax.incremental_update(params, state["ema"], 1.0 - self.cfg.ema_decay)
        return {"params": params, "opt": opt, "ema": ema}, {"loss": loss, "acc": acc}

    def fit(self, steps: int) -> None:
        batches = self.data.batches()
        for step in range(1, steps + 1):
            x, y = next(batches)
            self.state, metrics = self.train_step(self.state, x, y, self.smoothing(step))
            for callback in self.callbacks:
                callback.on_step_end(self, step, metrics)


def main() -> None:
    cfg = Config()
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else cfg.steps
    clock = WallClock(after=WARMUP)
    trainer = Trainer(cfg, KeywordClips(cfg), [LossLogger(cfg.log_every), clock])
    trainer.fit(WARMUP + steps)
    print(f"done {steps} steps in {clock.elapsed(trainer):.2f} s")


if __name__ == "__main__":
    main()
