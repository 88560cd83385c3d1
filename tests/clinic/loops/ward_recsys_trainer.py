"""The step of the ward's recsys_trainer."""

import numpy as np

from tests.clinic.loops import Run, fed_back, ward


def prepare() -> Run:
    """As `main` does, with fewer users and no callbacks."""
    train = ward("recsys_trainer")
    batch = train.ArrayDataset(train.build_log(128)).batch(np.arange(512))
    trainer = train.Trainer(train.Model(), 0.05, [])
    return fed_back(trainer._step, (trainer.params, trainer.momentum), batch)
