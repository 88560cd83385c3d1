"""The step of grain_linen."""

from pathlib import Path

import numpy as np

from tests.clinic.loops import Run, fed_back, style


def prepare() -> Run:
    """As `main` does, with the files of one batch, which no pipeline loads."""
    train = style("grain_linen")
    rng = np.random.default_rng(0)
    files = train.prepare(Path("shapes"), 64)
    records = [train.augment(train.decode(file), rng) for file in files]
    batch = {key: np.stack([record[key] for record in records]) for key in ("image", "label")}
    state = train.create(train.CNN(len(train.SHAPES)), 0, 1e-3)
    return fed_back(train.train_step, [state], batch)
