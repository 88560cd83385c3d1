"""A vector-quantised audio codec for short chunks of synthetic speech (haiku).

    python healthy.py [STEPS]
"""
import sys
import time
from functools import partial

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax

RATE = 8000
CHUNK = 1024
BATCH = 48
CODES = 256
CODE_DIM = 32
COMMIT = 0.25


# ---------------------------------------------------------------- waveforms


def render_bank(seconds=240, seed=0):
    """Voiced and unvoiced segments with moving formants, as one long signal."""
    rng = np.random.default_rng(seed)
    pieces = []
    for _ in range(seconds * 4):
        n = RATE // 4
        t = np.arange(n, dtype=np.float32) / RATE
        if rng.random() < 0.75:
            pitch = rng.uniform(90, 260) * (1 + 0.1 * np.sin(2 * np.pi * rng.uniform(2, 6) * t))
            phase = 2 * np.pi * np.cumsum(pitch) / RATE
            formants = rng.uniform(300, 3000, size=3)
            wave = sum(
                np.exp(-np.abs(formants[:, None] - k * pitch.mean()).min(0) / 300.0) * np.sin(k * phase)
                for k in range(1, 12)
            )
        else:
            wave = 0.4 * rng.standard_normal(n)
        envelope = np.sin(np.pi * np.arange(n) / n) ** 0.5
        pieces.append((wave * envelope).astype(np.float32))
    bank = np.concatenate(pieces)
    return bank / np.abs(bank).max()


def chunks(bank, rng):
    offsets = np.arange(CHUNK)
    while True:
        starts = rng.integers(len(bank) - CHUNK, size=BATCH)
        gain = rng.uniform(0.5, 1.0, size=(BATCH, 1)).astype(np.float32)
        yield bank[starts[:, None] + offsets] * gain


# -------------------------------------------------------------------- model


class Encoder(hk.Module):
    def __call__(self, x):
        x = jax.nn.gelu(hk.Conv1D(12, 8, stride=4)(x))
        x = jax.nn.gelu(hk.Conv1D(24, 8, stride=4)(x))
        return hk.Conv1D(CODE_DIM, 4, stride=2)(x)


class Quantiser(hk.Module):
    def __call__(self, z):
        codebook = hk.get_parameter("codebook", (CODES, CODE_DIM), init=hk.initializers.RandomUniform(-0.3, 0.3))
        flat = jax.lax.stop_gradient(z.reshape(-1, CODE_DIM))
        scores = flat @ codebook.T - 0.5 * (codebook**2).sum(-1)
        index = scores.argmax(-1)
        q = codebook[index].reshape(z.shape)
        book_loss = jnp.square(q - jax.lax.stop_gradient(z)).mean(axis=(1, 2))
        commit_loss = jnp.square(z - jax.lax.stop_gradient(q)).mean(axis=(1, 2))
        return z + jax.lax.stop_gradient(q - z), book_loss + COMMIT * commit_loss


class Decoder(hk.Module):
    def __call__(self, q):
        x = jax.nn.gelu(hk.Conv1DTranspose(24, 4, stride=2)(q))
        x = jax.nn.gelu(hk.Conv1DTranspose(12, 4, stride=4)(x))
        return hk.Conv1DTranspose(1, 8, stride=4)(x)


def codec(wave):
    z = Encoder()(wave[..., None])
    q, vq_loss = Quantiser()(z)
    return Decoder()(q)[..., 0], vq_loss


net = hk.without_apply_rng(hk.transform(codec))
optimiser = optax.adam(1e-3)


def loudness(wave):
    """Pre-emphasised RMS of one chunk, so that quiet chunks count as much."""
    emphasised = wave[1:] - 0.95 * wave[:-1]
    return jnp.sqrt(jnp.mean(emphasised**2) + 1e-4)


def loss_fn(params, wave, weight):
    decoded, vq_loss = net.apply(params, wave)
    error = jnp.abs(decoded - wave).mean(-1)
    return (weight * error).mean() + vq_loss.mean()


@partial(jax.jit, donate_argnums=(0, 1))
def update(params, opt_state, wave):
    level = jax.vmap(loudness)(wave)
    weight = level.mean() / level
    loss, grads = jax.value_and_grad(loss_fn)(params, wave, weight)
    updates, opt_state = optimiser.update(grads, opt_state)
    return optax.apply_updates(params, updates), opt_state, loss


def train(steps):
    rng = np.random.default_rng(1)
    source = chunks(render_bank(), rng)
    params = net.init(jax.random.PRNGKey(0), next(source))
    opt_state = optimiser.init(params)
    for i in range(steps + 10):
        if i == 10:
            jax.block_until_ready(params)
            start = time.perf_counter()
        params, opt_state, loss = update(params, opt_state, next(source))
        if i % 50 == 0:
            print(f"update {i}: loss {float(loss):.5f}", flush=True)
    jax.block_until_ready(params)
    return time.perf_counter() - start


if __name__ == "__main__":
    STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 20000
    seconds = train(STEPS)
    print(f"done {STEPS} steps in {seconds:.2f} s")
