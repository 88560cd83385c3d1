"""The step of the ward's lm_transformer."""

import jax
import numpy as np

from tests.clinic.loops import Run, fed_back, ward


def prepare() -> Run:
    """As `main` does."""
    train = ward("lm_transformer")
    rng = np.random.default_rng(0)
    corpus = rng.integers(0, 1024, size=500_000, dtype=np.int32)
    state = train.create_state(jax.random.key(0), train.LM(vocab=1024), 64, 3e-4)
    step = jax.jit(train.train_step, donate_argnums=(0,))
    return fed_back(step, [state], train.sample_batch(corpus, rng, 8, 64))
