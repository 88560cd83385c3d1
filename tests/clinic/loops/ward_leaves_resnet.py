"""The step of the ward's leaves_resnet."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from tests.clinic.loops import Run, fed_back, ward


def prepare() -> Run:
    """As `main` does, with the photos of one batch."""
    train = ward("leaves_resnet")
    folder = Path("photos")
    folder.mkdir()
    train.write_photos(folder, 32)
    batch = train.Photos(sorted(folder.glob("*.jpg")))[np.arange(32)]
    model = train.LeafNet()
    example = jnp.zeros((1, train.SIZE, train.SIZE, 3))
    variables = model.init(jax.random.key(0), example)
    tx = train.optax.adamw(2e-3)
    state = train.State.create(apply_fn=model.apply, tx=tx, **variables)
    return fed_back(train.train_step, [state], *batch)
