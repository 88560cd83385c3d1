"""Mixture of experts on tabular data: predict the yield of a simulated chemical plant.

The plant runs in one of several regimes, which nobody records; a top-2 gated mixture should find
them by itself. Batches are split into micro batches whose gradients are averaged within one jitted step.

    python moe_tab.py [STEPS]
"""
import dataclasses
import functools
import sys
import time

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training import train_state


@dataclasses.dataclass(frozen=True)
class Config:
    rows: int = 40_000
    features: int = 48
    regimes: int = 6
    experts: int = 8
    width: int = 96
    depth: int = 3
    top_k: int = 2
    batch: int = 1024
    micro: int = 512
    lr: float = 2e-3
    balance: float = 1e-2
    noise: float = 0.05
    warm_gate: float = 2.0
    report_every: int = 500
    seed: int = 7


# ---------------------------------------------------------------- data

def make_plant(cfg: Config):
    """Sensor readings and yields; each regime has its own smooth response surface."""
    rng = np.random.default_rng(cfg.seed)
    regime = rng.integers(0, cfg.regimes, cfg.rows)
    centres = rng.normal(0, 1.2, (cfg.regimes, cfg.features))
    x = centres[regime] + rng.standard_normal((cfg.rows, cfg.features))
    a = rng.normal(0, 1 / np.sqrt(cfg.features), (cfg.regimes, cfg.features, 4))
    z = np.einsum("nf,nfk->nk", x, a[regime])
    y = np.sin(z[:, 0]) + 0.5 * z[:, 1] * np.tanh(z[:, 2]) + 0.3 * np.abs(z[:, 3])
    y += cfg.noise * rng.standard_normal(cfg.rows)
    x = (x - x.mean(0)) / x.std(0)
    y = (y - y.mean()) / y.std()
    cut = cfg.rows - 4000
    return (x[:cut], y[:cut]), (x[cut:], y[cut:])


# ---------------------------------------------------------------- model

class Experts(nn.Module):
    """All experts at once: their weights carry a leading axis of experts."""
    count: int
    width: int
    depth: int

    @nn.compact
    def __call__(self, x):
        init = nn.initializers.variance_scaling(2.0, "fan_in", "normal", batch_axis=(0,))
        h = jnp.broadcast_to(x, (self.count,) + x.shape)
        for layer in range(self.depth):
            w = self.param(f"w{layer}", init, (self.count, h.shape[-1], self.width))
            b = self.param(f"b{layer}", nn.initializers.zeros, (self.count, 1, self.width))
            out = nn.gelu(jnp.einsum("enf,efh->enh", h, w) + b)
            h = out if h.shape[-1] != self.width else h + 0.5 * out
        w = self.param("w_out", init, (self.count, self.width, 1))
        return jnp.einsum("enf,efo->noe", h, w)[:, 0, :]


class Mixture(nn.Module):
    cfg: Config

    @nn.compact
    def __call__(self, x, temperature):
        cfg = self.cfg
        logits = nn.Dense(cfg.experts)(nn.tanh(nn.Dense(32)(x))) / temperature
        best, _ = jax.lax.top_k(logits, cfg.top_k)
        kept = jnp.where(logits >= best[:, -1:], logits, -1e9)
        gate = nn.softmax(kept)
        answers = Experts(cfg.experts, cfg.width, cfg.depth)(x)
        share = nn.softmax(logits).mean(0)
        balance = cfg.experts * jnp.sum(share * (gate > 0).mean(0))
        return jnp.sum(gate * answers, -1), balance


# ---------------------------------------------------------------- training

class State(train_state.TrainState):
    key: jax.Array


def create_state(cfg: Config) -> State:
    model = Mixture(cfg)
    key, init_key = jax.random.split(jax.random.PRNGKey(cfg.seed))
    params = model.init(init_key, jnp.zeros((2, cfg.features)), 1.0)["params"]
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(cfg.lr, weight_decay=1e-4))
    return State.create(apply_fn=model.apply, params=params, tx=tx, key=key)


@functools.partial(jax.jit, static_argnames=("cfg",), donate_argnums=(0,))
def train_step(state: State, x, y, temperature, cfg: Config):
    key, pick = jax.random.split(state.key)
    rows = jax.random.randint(pick, (cfg.batch // cfg.micro, cfg.micro), 0, x.shape[0])

    def loss_fn(params, idx):
        guess, balance = state.apply_fn({"params": params}, x[idx], temperature)
        mse = jnp.mean((guess - y[idx]) ** 2)
        return mse + cfg.balance * balance, mse

    def accumulate(total, idx):
        (_, mse), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params, idx)
        return jax.tree.map(jnp.add, total, grads), mse

    zero = jax.tree.map(jnp.zeros_like, state.params)
    grads, mses = jax.lax.scan(accumulate, zero, rows)
    grads = jax.tree.map(lambda g: g / rows.shape[0], grads)
    return state.apply_gradients(grads=grads, key=key), mses.mean()


@jax.jit
def evaluate(state: State, x, y):
    guess, _ = state.apply_fn({"params": state.params}, x, 1.0)
    return jnp.mean((guess - y) ** 2)


def gate_temperature(cfg: Config, step: int) -> float:
    """Soft gates at first, so that all experts learn something."""
    return 1.0 + (cfg.warm_gate - 1.0) * 0.5 ** (step / 200)


def main(steps: int, cfg: Config = Config()):
    (x, y), held_out = make_plant(cfg)
    x, y = jnp.asarray(x), jnp.asarray(y)
    held_out = tuple(jnp.asarray(a) for a in held_out)
    state = create_state(cfg)
    weights = sum(p.size for p in jax.tree.leaves(state.params))
    print(f"{weights} weights, {cfg.experts} experts, batches of {cfg.batch}", flush=True)

    warm = 5
    start = time.perf_counter()
    for step in range(steps):
        if step == warm:
            jax.block_until_ready(state.params)
            start = time.perf_counter()
        state, mse = train_step(state, x, y, gate_temperature(cfg, step), cfg)
        if step and step % cfg.report_every == 0:
            print(f"step {step}: train {float(mse):.4f} held out {float(evaluate(state, *held_out)):.4f}",
                  flush=True)
    jax.block_until_ready(state.params)
    seconds = time.perf_counter() - start
    print(f"final held out {float(evaluate(state, *held_out)):.4f}")
    print(f"done {steps - warm} steps in {seconds:.3f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 8000)
