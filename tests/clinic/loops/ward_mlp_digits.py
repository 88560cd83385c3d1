"""The step of the ward's mlp_digits."""

import jax
import jax.numpy as jnp
import numpy as np

from tests.clinic.loops import Run, fed_back, ward


def prepare() -> Run:
    """As `main` does."""
    train = ward("mlp_digits")
    images, labels = train.make_dataset(20000)
    params = train.init_params(jax.random.key(0), (784, *train.HIDDEN, train.CLASSES))
    velocity = jax.tree.map(jnp.zeros_like, params)
    idx = np.random.default_rng(1).integers(0, len(labels), size=256)
    lr = jnp.asarray(0.01, dtype=jnp.float32)
    return fed_back(train.train_step, (params, velocity), images, labels, idx, lr)
