"""Mixture of experts (equinox) that forecasts readings of synthetic machines.

Each machine type behaves differently; a router sends windows to two of the experts."""
import sys
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax


class Expert(eqx.Module):
    up: eqx.nn.Linear
    gate: eqx.nn.Linear
    down: eqx.nn.Linear

    def __init__(self, dim, hidden, key):
        a, b, c = jax.random.split(key, 3)
        self.up = eqx.nn.Linear(dim, hidden, key=a)
        self.gate = eqx.nn.Linear(dim, hidden, key=b)
        self.down = eqx.nn.Linear(hidden, dim, key=c)

    def __call__(self, x):
        return self.down(jax.nn.silu(self.gate(x)) * self.up(x))


class MoELayer(eqx.Module):
    norm: eqx.nn.LayerNorm
    router: eqx.nn.Linear
    experts: list
    capacity: int = eqx.field(static=True)

    def __init__(self, dim, hidden, n, capacity, key):
        keys = jax.random.split(key, n + 1)
        self.norm = eqx.nn.LayerNorm(dim)
        self.router = eqx.nn.Linear(dim, n, use_bias=False, key=keys[0])
        self.experts = [Expert(dim, hidden, k) for k in keys[1:]]
        self.capacity = capacity

    def __call__(self, x):
        h = jax.vmap(self.norm)(x)
        probs = jax.nn.softmax(jax.vmap(self.router)(h))
        top, who = jax.lax.top_k(probs, 2)
        share = (jax.nn.one_hot(who, probs.shape[-1]) * top[..., None]).sum(1)
        out = jnp.zeros_like(x)
        for e, expert in enumerate(self.experts):
            w, rows = jax.lax.top_k(share[:, e], self.capacity)
            y = jax.vmap(expert)(h[rows])
            out = out.at[rows].add(w[:, None] * y)
        load = (share > 0).mean(0)
        balance = share.shape[-1] * (load * probs.mean(0)).sum()
        return x + out, balance


class Forecaster(eqx.Module):
    stem: eqx.nn.Linear
    layers: list
    head: eqx.nn.Linear

    def __init__(self, window, horizon, dim, key, depth=2, n=4, hidden=128, capacity=128):
        ks = jax.random.split(key, depth + 2)
        self.stem = eqx.nn.Linear(window, dim, key=ks[0])
        self.layers = [MoELayer(dim, hidden, n, capacity, k) for k in ks[2:]]
        self.head = eqx.nn.Linear(dim, horizon, key=ks[1])

    def __call__(self, x):
        h = jax.vmap(self.stem)(x)
        aux = 0.0
        for layer in self.layers:
            h, b = layer(h)
            aux = aux + b
        return jax.vmap(self.head)(h), aux


class Fleet:
    """Long recorded series, cut into windows."""

    def __init__(self, machines=48, length=20_000, window=64, horizon=16, seed=0):
        rng = np.random.default_rng(seed)
        t = np.arange(length, dtype=np.float32)
        kinds = rng.integers(0, 4, machines)
        rows = []
        for k in kinds:
            f = rng.uniform(0.01, 0.1)
            wave = [np.sin(f * t), np.sign(np.sin(f * t)), (f * t) % 1.0, np.sin(f * t) ** 3][k]
            rows.append(wave + 0.1 * rng.standard_normal(length, dtype=np.float32))
        self.series = np.stack(rows).astype(np.float32)
        self.window, self.horizon = window, horizon
        cut = np.lib.stride_tricks.sliding_window_view(self.series, window + horizon, axis=1)
        self.cut = cut
        self.rng = rng

    def sample(self, n):
        m = self.rng.integers(0, self.cut.shape[0], n)
        s = self.rng.integers(0, self.cut.shape[1], n)
        both = self.cut[m, s]
        return both[:, : self.window], both[:, self.window:]


class Trainer:
    def __init__(self, batch=256, seed=0):
        self.fleet = Fleet()
        self.batch = batch
        self.model = Forecaster(64, 16, 64, jax.random.PRNGKey(seed))
        self.opt = optax.adam(optax.exponential_decay(1e-3, 1000, 0.8))
        self.opt_state = self.opt.init(eqx.filter(self.model, eqx.is_array))
        self.slow = jax.tree.map(lambda a: a.copy() if eqx.is_array(a) else a, self.model)
        self.seen = 0
        self.build()

    @staticmethod
    def loss(model, x, y):
        pred, aux = model(x)
        return jnp.mean((pred - y) ** 2) + 0.01 * aux

    @staticmethod
    def blend(slow, new):
        return jax.tree.map(lambda s, n: s + 0.01 * (n - s) if eqx.is_inexact_array(s) else s, slow, new)

    def build(self):
        def step(model, slow, opt_state, x, y):
            loss, grads = eqx.filter_value_and_grad(self.loss)(model, x, y)
            updates, opt_state = self.opt.update(grads, opt_state)
            model = eqx.apply_updates(model, updates)
            return model, self.blend(slow, model), opt_state, loss

        self._step = eqx.filter_jit(step, donate="all")

    def step(self):
        x, y = self.fleet.sample(self.batch)
        self.model, self.slow, self.opt_state, loss = self._step(
            self.model, self.slow, self.opt_state, x, y)
        self.seen += self.batch
        return loss

    def fit(self, steps, log_every=50):
        for _ in range(5):
            self.step()
        jax.block_until_ready(self.opt_state)
        begin = time.perf_counter()
        for i in range(1, steps + 1):
            loss = self.step()
            if i % log_every == 0:
                print(f"{i} windows={self.seen} loss={float(loss):.4f}", flush=True)
        jax.block_until_ready((self.slow, self.opt_state))
        end = time.perf_counter()
        print(f"done {steps} steps in {end - begin:.3f} s")


if __name__ == "__main__":
    Trainer().fit(int(sys.argv[1]) if len(sys.argv) > 1 else 3000)
