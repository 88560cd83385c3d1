"""The step of optax_cnn."""

from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tests.clinic.loops import Run, fed_back, style


def prepare() -> Run:
    """As `main` does, with the images of one batch."""
    train = style("optax_cnn")
    train.EXAMPLES = 64
    loader = train.DataLoader(train.ShapesDataset(Path("shapes")), 64, 0)
    batch = loader.collate(np.arange(64), np.arange(64) % 2 == 0)
    optimizer = train.optax.adam(2e-3)
    params = train.init(jax.random.key(0))

    def loss_fn(params: Any, images: jax.Array, labels: jax.Array) -> jax.Array:
        logits = train.logits_of(params, images)
        return train.optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    @partial(jax.jit, donate_argnums=(0, 1))
    def update(params: Any, opt_state: Any, *batch: jax.Array) -> tuple[Any, Any, jax.Array]:
        loss, grads = jax.value_and_grad(loss_fn)(params, *batch)
        updates, opt_state = optimizer.update(grads, opt_state)
        return train.optax.apply_updates(params, updates), opt_state, loss

    return fed_back(update, (params, optimizer.init(params)), *batch)
