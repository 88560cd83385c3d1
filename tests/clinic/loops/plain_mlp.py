"""The step of plain_mlp."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from tests.clinic.loops import Run, fed_back, style


def prepare() -> Run:
    """As `main` does."""
    train = style("plain_mlp")
    batch = next(train.batches(*train.load_features(Path("data")), 64, np.random.default_rng(0)))
    params = train.init_params(0)
    velocity = jax.tree.map(jnp.zeros_like, params)
    return fed_back(train.train_step, (params, velocity), *batch, 0.01)
