"""Day-ahead load forecasts: an equinox GRU over hourly series, batches from a generator."""
import math
import sys
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

STATIONS = 60
HOURS = 24 * 200
CONTEXT = 72
HORIZON = 24
FEATURES = 3
HIDDEN = 64
BATCH = 64
PEAK_LR = 2e-3


def make_series(seed=0):
    """Hourly load of each station: daily and weekly cycles, a trend, noise."""
    rng = np.random.default_rng(seed)
    t = np.arange(HOURS)
    phase = rng.uniform(0, 2 * np.pi, (STATIONS, 2, 1))
    size = rng.uniform(0.5, 1.5, (STATIONS, 2, 1))
    daily = size[:, 0] * np.sin(2 * np.pi * t / 24 + phase[:, 0])
    weekly = size[:, 1] * np.sin(2 * np.pi * t / 168 + phase[:, 1])
    noise = np.cumsum(rng.normal(0, 0.02, (STATIONS, HOURS)), axis=1)
    load = daily + weekly + noise
    load = (load - load.mean(1, keepdims=True)) / load.std(1, keepdims=True)
    clock = np.stack([np.sin(2 * np.pi * t / 24), np.cos(2 * np.pi * t / 24)])
    clock = np.broadcast_to(clock, (STATIONS, 2, HOURS))
    table = np.concatenate([load[:, None], clock], axis=1)
    return np.ascontiguousarray(table.transpose(0, 2, 1), np.float32)


def window_batches(table, seed=1):
    rng = np.random.default_rng(seed)
    span = np.arange(CONTEXT + HORIZON)
    while True:
        station = rng.integers(STATIONS, size=(BATCH, 1))
        begin = rng.integers(HOURS - len(span), size=(BATCH, 1))
        window = table[station, begin + span]
        yield window


class Forecaster(eqx.Module):
    cell: eqx.nn.GRUCell
    norm: eqx.nn.LayerNorm
    head: eqx.nn.MLP

    def __init__(self, key):
        k1, k2 = jax.random.split(key)
        self.cell = eqx.nn.GRUCell(FEATURES, HIDDEN, key=k1)
        self.norm = eqx.nn.LayerNorm(HIDDEN)
        self.head = eqx.nn.MLP(HIDDEN, HORIZON, 128, 1, key=k2)

    def __call__(self, x):
        def tick(h, x_t):
            h = self.cell(x_t, h)
            return h, h

        _, hs = jax.lax.scan(tick, jnp.zeros(HIDDEN), x)
        return jax.vmap(lambda h: self.head(self.norm(h)))(hs)


def loss_fn(model, window):
    forecast = jax.vmap(model)(window[:, :CONTEXT])
    index = jnp.arange(CONTEXT)[:, None] + 1 + jnp.arange(HORIZON)[None]
    target = window[:, :, 0][:, index]
    return jnp.mean(optax.huber_loss(forecast, target)), forecast


def cosine_lr(step, warmup=200, total=20000):
    if step < warmup:
        return PEAK_LR * (step + 1) / warmup
    done = min(1.0, (step - warmup) / (total - warmup))
    return PEAK_LR * 0.5 * (1.0 + math.cos(math.pi * done))


optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.scale_by_adam())


@eqx.filter_jit(donate="all")
def make_step(model, opt_state, window, lr):
    (loss, forecast), grads = eqx.filter_value_and_grad(loss_fn, has_aux=True)(model, window)
    updates, opt_state = optimizer.update(grads, opt_state, eqx.filter(model, eqx.is_array))
    updates = jax.tree.map(lambda u: -lr * u, updates)
    return eqx.apply_updates(model, updates), opt_state, loss, forecast


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 6000
    table = make_series()
    model = Forecaster(jax.random.key(0))
    opt_state = optimizer.init(eqx.filter(model, eqx.is_array))
    batches = window_batches(table)

    for step in range(steps + 3):
        if step == 3:
            jax.block_until_ready(eqx.filter(model, eqx.is_array))
            start = time.perf_counter()
        window = next(batches)
        lr = np.float32(cosine_lr(step))
        model, opt_state, loss, forecast = make_step(model, opt_state, jnp.asarray(window), lr)
        if step % 500 == 0:
            print(f"step {step} loss {float(loss):.5f}", flush=True)

    jax.block_until_ready(eqx.filter((model, opt_state), eqx.is_array))
    seconds = time.perf_counter() - start
    print(f"last forecast for the first window: {np.asarray(forecast)[0, -1, :4]}")
    print(f"done {steps} steps in {seconds:.3f} s")


if __name__ == "__main__":
    main()
