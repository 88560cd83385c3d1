"""Contrastive pre-training of a time-series encoder with an EMA teacher.

Student and teacher are the same recurrent encoder (equinox); the teacher
follows the student by an exponential moving average.

usage: python series_contrast.py [STEPS]
"""
import sys
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

CHANNELS = 32
LENGTH = 16
HIDDEN = 32
EMBED = 64
BATCH = 64
TEMPERATURE = 0.2
EMA = 0.99
EPOCH = 20
LOG_EVERY = 300


class Encoder(eqx.Module):
    inp: eqx.nn.Linear
    cell: eqx.nn.GRUCell
    proj: eqx.nn.MLP

    def __init__(self, key):
        k1, k2, k3 = jax.random.split(key, 3)
        self.inp = eqx.nn.Linear(CHANNELS, 64, key=k1)
        self.cell = eqx.nn.GRUCell(64, HIDDEN, key=k2)
        self.proj = eqx.nn.MLP(HIDDEN, EMBED, 128, depth=1, key=k3)

    def __call__(self, series):
        """series: (LENGTH, CHANNELS) -> unit vector of EMBED"""
        tokens = jax.nn.gelu(jax.vmap(self.inp)(series))

        def tick(carry, token):
            carry = self.cell(token, carry)
            return carry, None

        last, _ = jax.lax.scan(tick, jnp.zeros(HIDDEN), tokens)
        z = self.proj(last)
        return z / (jnp.linalg.norm(z) + 1e-6)


class State(eqx.Module):
    student: Encoder
    teacher: Encoder
    opt: optax.OptState
    key: jax.Array


def load_series(n=4096, seed=5):
    """Random sums of sinusoids per channel, a sensor-array stand-in."""
    rng = np.random.default_rng(seed)
    t = np.linspace(0, 1, 2 * LENGTH, dtype=np.float32)[None, :, None]
    freq = rng.uniform(1, 8, (n, 1, CHANNELS)).astype(np.float32)
    phase = rng.uniform(0, 2 * np.pi, (n, 1, CHANNELS)).astype(np.float32)
    return np.sin(2 * np.pi * freq * t + phase).astype(np.float32)


def catalogue(n=4096):
    return np.arange(n), np.full(n, 2 * LENGTH)


def augment(key, series):
    k1, k2, k3, k4 = jax.random.split(key, 4)
    start = jax.random.randint(k1, (), 0, LENGTH)
    crop = jax.lax.dynamic_slice_in_dim(series, start, LENGTH, axis=0)
    gain = 1.0 + 0.2 * jax.random.normal(k2, (CHANNELS,))
    keep = jax.random.bernoulli(k4, 0.9, crop.shape)
    return jnp.where(keep, crop * gain + 0.05 * jax.random.normal(k3, crop.shape), 0.0)


tx = optax.adamw(3e-4, weight_decay=1e-4)


def info_nce(student, targets, views):
    z = jax.vmap(student)(views)
    logits = z @ targets.T / TEMPERATURE
    labels = jnp.arange(z.shape[0])
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), z


@eqx.filter_jit(donate="all-except-first")
def train_step(data, state):
    key, k_idx, k_a, k_b = jax.random.split(state.key, 4)
    batch = data[jax.random.randint(k_idx, (BATCH,), 0, data.shape[0])]
    view_a = jax.vmap(augment)(jax.random.split(k_a, BATCH), batch)
    view_b = jax.vmap(augment)(jax.random.split(k_b, BATCH), batch)
    targets = jax.lax.stop_gradient(jax.vmap(state.teacher)(view_b))

    (loss, z), grads = eqx.filter_value_and_grad(info_nce, has_aux=True)(
        state.student, targets, view_a)
    updates, opt = tx.update(grads, state.opt, eqx.filter(state.student, eqx.is_array))
    student = eqx.apply_updates(state.student, updates)
    teacher = jax.tree.map(
        lambda t, s: EMA * t + (1.0 - EMA) * s if eqx.is_array(t) else t,
        state.teacher, student)
    return State(student, teacher, opt, key), loss, z


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 40_000
    data = jnp.asarray(load_series())
    ids, spans = catalogue()
    key = jax.random.PRNGKey(0)
    k_model, key = jax.random.split(key)
    state = State(
        student=Encoder(k_model),
        teacher=Encoder(k_model),
        opt=tx.init(eqx.filter(Encoder(k_model), eqx.is_array)),
        key=key,
    )
    print(f"{len(ids)} series, {int(spans.sum())} samples")

    for step in range(steps):
        if step == 3:
            jax.block_until_ready(eqx.filter(state, eqx.is_array))
            t0 = time.perf_counter()
        state, loss, z = train_step(data, state)
        if step % LOG_EVERY == 0:
            print(f"step {step}: loss {float(loss):.4f}", flush=True)

    jax.block_until_ready(eqx.filter(state, eqx.is_array))
    secs = time.perf_counter() - t0
    print(f"done {steps - 3} steps in {secs:.4f} s")


if __name__ == "__main__":
    main()
