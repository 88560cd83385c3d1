"""A network of dense layers over terrain, past demand, and radial basis functions of the clock."""

import functools
import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from .config import Config
from .data import Batch

CENTRES = np.linspace(0, 1, 24)
Params = dict[str, jax.Array]


class State(NamedTuple):
    params: Params
    opt_state: optax.OptState


def optimizer(config: Config) -> optax.GradientTransformation:
    return optax.adam(config.learning_rate)


def initial(config: Config) -> State:
    sizes = [config.cell_features + config.lags + 2 * len(CENTRES), config.width, config.width, 1]
    keys = jax.random.split(jax.random.key(config.seed), len(sizes))
    params = {}
    for layer, (n_in, n_out) in enumerate(itertools.pairwise(sizes)):
        weights = jax.random.normal(keys[layer], (n_in, n_out), jnp.float32)
        params[f"w{layer}"] = weights * jnp.float32((2 / n_in) ** 0.5)
        params[f"b{layer}"] = jnp.zeros(n_out, jnp.float32)
    return State(params, optimizer(config).init(params))


def features(terrain: jax.Array, batch: Batch) -> jax.Array:
    distance = batch.clock[..., None] - CENTRES
    basis = jnp.exp(-200 * jnp.minimum(abs(distance), 1 - abs(distance)) ** 2)
    columns = [terrain[batch.cell], jnp.log1p(batch.lags), basis.reshape(len(basis), -1)]
    return jnp.concatenate(columns, axis=1)


def predict(params: Params, x: jax.Array) -> jax.Array:
    x = jax.nn.relu(x @ params["w0"] + params["b0"])
    x = jax.nn.relu(x @ params["w1"] + params["b1"])
    return (x @ params["w2"] + params["b2"])[:, 0]


@functools.partial(jax.jit, static_argnames="config", donate_argnames="state")
def train_step(
    state: State, terrain: jax.Array, batch: Batch, config: Config
) -> tuple[State, jax.Array]:
    def poisson(params: Params) -> jax.Array:
        log_rate = predict(params, features(terrain, batch))
        return (jnp.exp(log_rate) - batch.demand * log_rate).mean()

    loss, grads = jax.value_and_grad(poisson)(state.params)
    updates, opt_state = optimizer(config).update(grads, state.opt_state)
    return State(optax.apply_updates(state.params, updates), opt_state), loss
