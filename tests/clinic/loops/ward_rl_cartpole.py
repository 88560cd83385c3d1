"""The step of the ward's rl_cartpole."""

from functools import partial

import jax
import jax.numpy as jnp

from tests.clinic.loops import Run, fed_back, ward


def prepare() -> Run:
    """As `main` does; the key is the first step's."""
    train = ward("rl_cartpole")
    tx = train.optax.adam(3e-3)
    params = train.policy_init(jax.random.key(0), 64)
    key, *_ = jax.random.split(jax.random.key(1), 300)
    step = partial(train.train_iter, n_envs=64, horizon=64, tx=tx)
    return fed_back(step, (params, tx.init(params)), key, jnp.float32(0.98))
