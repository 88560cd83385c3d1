"""A small GAN that learns to draw digits (non-saturating loss, R1 penalty), two optimisers."""

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

NOISE = 32
Weights = list[tuple[jax.Array, jax.Array]]


@jax.tree_util.register_dataclass
@dataclass
class Player:
    """A network and its optimiser's state."""

    weights: Weights
    opt_state: Any


def dense(key: jax.Array, *sizes: int) -> Weights:
    keys = jax.random.split(key, len(sizes) - 1)
    glorot = jax.nn.initializers.glorot_normal()
    return [
        (glorot(k, shape), jnp.zeros(shape[1]))
        for k, shape in zip(keys, pairwise(sizes), strict=True)
    ]


def run(weights: Weights, x: jax.Array) -> jax.Array:
    *hidden, (w, b) = weights
    for v, c in hidden:
        x = jax.nn.leaky_relu(x @ v + c, 0.2)
    return x @ w + b


def generate(weights: Weights, noise: jax.Array) -> jax.Array:
    return jnp.tanh(run(weights, noise))


opt = optax.adam(2e-4, b1=0.5)


def moved(player: Player, grads: Weights) -> Player:
    updates, opt_state = opt.update(grads, player.opt_state)
    return Player(optax.apply_updates(player.weights, updates), opt_state)


@partial(jax.jit, donate_argnums=0)
def d_step(
    critic: Player, generator: Weights, real: jax.Array, noise: jax.Array
) -> tuple[Player, jax.Array]:
    fake = generate(generator, noise)

    def d_loss(weights: Weights) -> jax.Array:
        def score(x: jax.Array) -> jax.Array:
            return run(weights, x)[:, 0]

        slope = jax.grad(lambda x: score(x).sum())(real)
        penalty = 0.5 * (slope**2).sum(-1)
        return (jax.nn.softplus(-score(real)) + jax.nn.softplus(score(fake)) + penalty).mean()

    loss, grads = jax.value_and_grad(d_loss)(critic.weights)
    return moved(critic, grads), loss


@partial(jax.jit, donate_argnums=0)
def g_step(generator: Player, critic: Weights, noise: jax.Array) -> tuple[Player, jax.Array]:
    def g_loss(weights: Weights) -> jax.Array:
        return jax.nn.softplus(-run(critic, generate(weights, noise))).mean()

    loss, grads = jax.value_and_grad(g_loss)(generator.weights)
    return moved(generator, grads), loss


def jittered(image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Thicker or thinner, a little noisy, and shifted by up to a pixel."""
    image = np.roll(image, rng.integers(-1, 2, 2), axis=(0, 1)) ** rng.uniform(0.7, 1.4)
    return np.clip(image + rng.normal(0, 0.02, image.shape), 0, 1)


def reals(images: np.ndarray, size: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    order = rng.permutation(len(images))
    for i in range(0, len(images) - size + 1, size):
        batch = np.stack([jittered(images[j], rng) for j in order[i : i + size]])
        yield batch.reshape(size, -1).astype(np.float32) * 2 - 1


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--epochs", type=int, default=1000)
    ap.add_argument("--batch", type=int, default=64)
    ap.add_argument("--width", type=int, default=384)
    ap.add_argument("--seed", type=int, default=3)
    opts = ap.parse_args()

    rng = np.random.default_rng(opts.seed)
    images = np.tile(load_digits().images / 16, (3, 1, 1))
    k1, k2 = jax.random.split(jax.random.PRNGKey(opts.seed))
    w = opts.width
    players = [Player(p, opt.init(p)) for p in (dense(k1, NOISE, w, w, 64), dense(k2, 64, w, w, 1))]
    generator, critic = players

    for epoch in range(1, opts.epochs + 1):
        tic, d_losses, g_losses = time.perf_counter(), [], []
        for real in reals(images, opts.batch, rng):
            noise = rng.standard_normal((2, opts.batch, NOISE), dtype=np.float32)
            critic, d = d_step(critic, generator.weights, real, noise[0])
            generator, g = g_step(generator, critic.weights, noise[1])
            d_losses.append(d)
            g_losses.append(g)
        means = np.mean(jax.device_get([d_losses, g_losses]), axis=1)
        rate = len(d_losses) * opts.batch / (time.perf_counter() - tic)
        print(f"{epoch}: D {means[0]:.3f} G {means[1]:.3f} | {rate:.0f} examples/s", flush=True)

    print("end", float(d), float(g))
    np.save("samples.npy", generate(generator.weights, noise[0]))


if __name__ == "__main__":
    main()
