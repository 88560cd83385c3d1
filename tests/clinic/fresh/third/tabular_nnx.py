"""Credit-default style tabular classifier with flax.nnx, driven by a config.

usage: python tabular_nnx.py [STEPS]
"""
import dataclasses
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx


@dataclasses.dataclass(frozen=True)
class DataConfig:
    rows: int = 120_000
    numeric: int = 48
    cardinalities: tuple = (12, 40, 7, 300, 25, 90)
    seed: int = 7


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    embed_dim: int = 8
    hidden: tuple = (256, 256, 128)
    seed: int = 0


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    batch_size: int = 256
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    clip: float = 1.0
    log_every: int = 300
    steps: int = 60_000
    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()


def load_table(cfg: DataConfig):
    rng = np.random.default_rng(cfg.seed)
    numeric = rng.standard_normal((cfg.rows, cfg.numeric))
    numeric[:, ::3] = np.exp(0.3 * numeric[:, ::3])
    numeric = (numeric - numeric.mean(0)) / numeric.std(0)
    cats = np.stack([rng.integers(0, c, cfg.rows) for c in cfg.cardinalities], 1)
    w = rng.standard_normal(cfg.numeric) / np.sqrt(cfg.numeric)
    score = numeric @ w + 0.5 * np.sin(cats[:, 0]) + 0.3 * numeric[:, 0] * numeric[:, 1]
    label = score + 0.3 * rng.standard_normal(cfg.rows) > 0.4
    return {
        "numeric": numeric.astype(np.float32),
        "cats": cats.astype(np.int32),
        "label": label.astype(np.float32),
    }


class TabularNet(nnx.Module):
    def __init__(self, data: DataConfig, model: ModelConfig, rngs: nnx.Rngs):
        self.embeds = nnx.List([
            nnx.Embed(c, model.embed_dim, rngs=rngs) for c in data.cardinalities
        ])
        width = data.numeric + model.embed_dim * len(data.cardinalities)
        layers, norms = [], []
        for h in model.hidden:
            layers.append(nnx.Linear(width, h, rngs=rngs))
            norms.append(nnx.LayerNorm(h, rngs=rngs))
            width = h
        self.layers = nnx.List(layers)
        self.norms = nnx.List(norms)
        self.head = nnx.Linear(width, 1, rngs=rngs)

    def __call__(self, numeric, cats):
        parts = [e(cats[:, i]) for i, e in enumerate(self.embeds)]
        x = jnp.concatenate([numeric] + parts, axis=-1)
        for layer, norm in zip(self.layers, self.norms):
            x = nnx.silu(norm(layer(x)))
        return self.head(x)[:, 0]


def build_optimizer(cfg: TrainConfig):
    return optax.chain(
        optax.clip_by_global_norm(cfg.clip),
        optax.adamw(cfg.learning_rate, weight_decay=cfg.weight_decay),
    )


def make_step(graphdef, cfg: TrainConfig):
    def loss_fn(model, batch):
        logits = model(batch["numeric"], batch["cats"])
        return optax.sigmoid_binary_cross_entropy(logits, batch["label"]).mean()

    def step(state, key, table):
        model, optimizer = nnx.merge(graphdef, state)
        key, sub = jax.random.split(key)
        rows = jax.random.randint(sub, (cfg.batch_size,), 0, cfg.data.rows)
        batch = {name: column[rows] for name, column in table.items()}
        loss, grads = nnx.value_and_grad(loss_fn)(model, batch)
        optimizer.update(model, grads)
        return nnx.state((model, optimizer)), key, loss

    return jax.jit(step, donate_argnums=(0, 1))


def main(cfg: TrainConfig):
    table = load_table(cfg.data)
    table = jax.device_put(table)
    model = TabularNet(cfg.data, cfg.model, nnx.Rngs(cfg.model.seed))
    optimizer = nnx.Optimizer(model, build_optimizer(cfg), wrt=nnx.Param)
    graphdef, state = nnx.split((model, optimizer))
    train_step = make_step(graphdef, cfg)
    key = jax.random.key(cfg.model.seed + 1)

    for i in range(3):
        state, key, loss = train_step(state, key, table)
    jax.block_until_ready(state)

    begin = time.perf_counter()
    for i in range(3, cfg.steps):
        state, key, loss = train_step(state, key, table)
        if i % cfg.log_every == 0:
            print(f"[{i:6d}] bce={float(loss):.4f}", flush=True)
    jax.block_until_ready(state)
    elapsed = time.perf_counter() - begin
    print(f"done {cfg.steps - 3} steps in {elapsed:.4f} s")


if __name__ == "__main__":
    config = TrainConfig()
    if len(sys.argv) > 1:
        config = dataclasses.replace(config, steps=int(sys.argv[1]))
    main(config)
