"""The step of haiku_vae."""

import numpy as np

from tests.clinic.loops import Run, fed_back, style


def prepare() -> Run:
    """As `main` does."""
    train = style("haiku_vae")
    keys, (images, _) = train.hk.PRNGSequence(42), train.load()
    params = train.model.init(next(keys), images[:128])
    state = train.State(params, train.optimizer.init(params))
    batch = next(train.batches(images, 128, np.random.default_rng(42)))
    return fed_back(train.update, [state], next(keys), batch)
