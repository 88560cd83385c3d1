"""Weights and velocity are kept on the host, and sent to the device in each step."""

import jax
import jax.numpy as jnp
import numpy as np

BATCH, WIDE = 32, 2048


def init():
    """Three layers, and their velocity."""
    draw = np.random.default_rng(0)
    shapes = [(784, WIDE), (WIDE, WIDE), (WIDE, 10)]
    weights = [draw.normal(0, 0.02, shape).astype(np.float32) for shape in shapes]
    return weights, [np.zeros_like(weight) for weight in weights]


def loss_of(weights, images, labels):
    """The mean cross-entropy."""
    hidden = images
    for weight in weights[:-1]:
        hidden = jax.nn.relu(hidden @ weight)
    logits = jax.nn.log_softmax(hidden @ weights[-1])
    return -jnp.take_along_axis(logits, labels[:, None], axis=1).mean()


@jax.jit
def update(weights, velocity, images, labels):
    """One step of gradient descent with momentum."""
    loss, slopes = jax.value_and_grad(loss_of)(weights, images, labels)
    velocity = [0.9 * v + slope for v, slope in zip(velocity, slopes, strict=True)]
    weights = [weight - 0.01 * v for weight, v in zip(weights, velocity, strict=True)]
    return weights, velocity, loss


def step(state, batch):
    """As the loop calls it."""
    weights, velocity, loss = update(*state, *batch)
    return ([np.array(each) for each in weights], [np.array(each) for each in velocity]), loss


def batches():
    """Without an end."""
    draw = np.random.default_rng(1)
    images = draw.standard_normal((20 * BATCH, 784), np.float32)
    labels = draw.integers(0, 10, 20 * BATCH)
    while True:
        for begin in range(0, len(labels), BATCH):
            yield images[begin : begin + BATCH], labels[begin : begin + BATCH]
