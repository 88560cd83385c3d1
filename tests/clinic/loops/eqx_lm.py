"""The step of eqx_lm."""

import equinox as eqx
import jax
import numpy as np

from tests.clinic.loops import Run, fed_back, style


def prepare() -> Run:
    """As `main` does, with a shorter text."""
    train = style("eqx_lm")
    rng = np.random.default_rng(0)
    batch = next(train.crops(train.write_text(rng, 10_000), 32, rng))
    optimizer = train.optax.chain(train.optax.clip_by_global_norm(1.0), train.optax.adam(2e-3))
    params, static = eqx.partition(train.LanguageModel(jax.random.key(0)), eqx.is_array)
    step = train.make_step(optimizer, static)
    return fed_back(step, (params, optimizer.init(params)), batch)
