"""A variational autoencoder of handwritten digits, in Haiku.

After Kingma & Welling, "Auto-encoding variational Bayes"; evaluated by importance-weighted bounds.
"""

import argparse
import functools
import time
from collections.abc import Iterator
from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

PIXELS = 256
LATENT = 16
HIDDEN = (512, 512)
SHIFTS = [(down, right) for down in (-1, 0, 1) for right in (-1, 0, 1)]


class Posterior(NamedTuple):
    mean: jax.Array
    log_std: jax.Array


class Encoder(hk.Module):
    def __call__(self, x: jax.Array) -> Posterior:
        hidden = hk.nets.MLP(HIDDEN, activate_final=True)(x)
        return Posterior(hk.Linear(LATENT)(hidden), hk.Linear(LATENT)(hidden))


class Decoder(hk.Module):
    def __call__(self, z: jax.Array) -> jax.Array:
        return hk.nets.MLP([*HIDDEN, PIXELS])(z)


def elbo(x: jax.Array) -> jax.Array:
    """The evidence lower bound of each image, with one sample."""
    posterior = Encoder()(x)
    noise = jax.random.normal(hk.next_rng_key(), posterior.mean.shape)
    logits = Decoder()(posterior.mean + jnp.exp(posterior.log_std) * noise)
    fit = -optax.sigmoid_binary_cross_entropy(logits, x).sum(-1)
    var = jnp.exp(2 * posterior.log_std)
    kl = 0.5 * (var + posterior.mean**2 - 1 - 2 * posterior.log_std).sum(-1)
    return fit - kl


def weighted_bound(x: jax.Array, samples: int) -> jax.Array:
    """Burda et al.: tighter with more samples."""
    posterior, decoder = Encoder()(x), Decoder()
    weights = []
    for _ in range(samples):
        noise = jax.random.normal(hk.next_rng_key(), posterior.mean.shape)
        z = posterior.mean + jnp.exp(posterior.log_std) * noise
        fit = -optax.sigmoid_binary_cross_entropy(decoder(z), x).sum(-1)
        prior = -0.5 * (z**2).sum(-1)
        weights.append(fit + prior + (0.5 * noise**2 + posterior.log_std).sum(-1))
    return (jax.nn.logsumexp(jnp.stack(weights), axis=0) - jnp.log(samples)).mean()


model = hk.transform(elbo)
bound = hk.transform(weighted_bound)
optimizer = optax.adam(1e-3)


class State(NamedTuple):
    params: hk.Params
    opt_state: optax.OptState


@functools.partial(jax.jit, donate_argnums=0)
def update(state: State, rng: jax.Array, batch: jax.Array) -> tuple[State, jax.Array]:
    def loss_fn(params: hk.Params) -> jax.Array:
        return -model.apply(params, rng, batch).mean()

    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    updates, opt_state = optimizer.update(grads, state.opt_state)
    return State(optax.apply_updates(state.params, updates), opt_state), loss


@functools.partial(jax.jit, static_argnames="samples")
def evaluate(params: hk.Params, rng: jax.Array, images: jax.Array, samples: int) -> jax.Array:
    return bound.apply(params, rng, images, samples)


def load() -> tuple[np.ndarray, np.ndarray]:
    """Digits, twice as large and shifted by a pixel each way; train and test."""
    digits = np.kron(load_digits().images / 16, np.ones((1, 2, 2))).astype(np.float32)
    train, test = digits[:1500], digits[1500:]
    shifted = [np.roll(train, shift, axis=(1, 2)) for shift in SHIFTS]
    return np.concatenate(shifted).reshape(-1, PIXELS), test.reshape(-1, PIXELS)


def batches(images: np.ndarray, size: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    order = rng.permutation(len(images))
    for start in range(0, len(order) - size + 1, size):
        yield images[order[start : start + size]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=1000)
    parser.add_argument("--batch_size", type=int, default=128)
    parser.add_argument("--bounds", type=int, nargs="*", default=[1, 5])
    parser.add_argument("--seed", type=int, default=42)
    args = parser.parse_args()

    keys = hk.PRNGSequence(args.seed)
    rng = np.random.default_rng(args.seed)
    train, test = load()
    params = model.init(next(keys), train[: args.batch_size])
    state = State(params, optimizer.init(params))

    for epoch in range(args.epochs):
        began, seen = time.time(), 0
        for batch in batches(train, args.batch_size, rng):
            state, loss = update(state, next(keys), batch)
            seen += len(batch)
        loss = float(loss)
        print(
            f"{epoch:4d}  -elbo {loss:8.3f}  {seen / (time.time() - began):.1f} examples/s",
            flush=True,
        )

    for samples in args.bounds:
        value = float(evaluate(state.params, next(keys), test, samples))
        print(f"log p(x) >= {value!r} with {samples} samples")
    np.savez("result.npz", **{k.replace("/", "."): v["w"] for k, v in state.params.items()})


if __name__ == "__main__":
    main()
