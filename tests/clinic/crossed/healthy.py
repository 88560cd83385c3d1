"""Nothing is wrong with it."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

BATCH, WIDE = 256, 768


def init():
    """Three layers."""
    draw = np.random.default_rng(0)
    shapes = [(784, WIDE), (WIDE, WIDE), (WIDE, 10)]
    return [jnp.asarray(draw.normal(0, 0.05, shape), jnp.float32) for shape in shapes]


def loss_of(weights, images, labels):
    """The mean cross-entropy."""
    hidden = images
    for weight in weights[:-1]:
        hidden = jax.nn.relu(hidden @ weight)
    logits = jax.nn.log_softmax(hidden @ weights[-1])
    return -jnp.take_along_axis(logits, labels[:, None], axis=1).mean()


@partial(jax.jit, donate_argnums=0)
def update(weights, images, labels):
    """One step of gradient descent."""
    loss, slopes = jax.value_and_grad(loss_of)(weights, images, labels)
    return [weight - 0.01 * slope for weight, slope in zip(weights, slopes, strict=True)], loss


def step(state, batch):
    """As the loop calls it."""
    return update(state, *batch)


def batches():
    """Without an end."""
    draw = np.random.default_rng(1)
    images = draw.standard_normal((20 * BATCH, 784), np.float32)
    labels = draw.integers(0, 10, 20 * BATCH)
    while True:
        for begin in range(0, len(labels), BATCH):
            yield images[begin : begin + BATCH], labels[begin : begin + BATCH]
