"""The step of recsys."""

from pathlib import Path

import numpy as np

from tests.clinic.loops import Run, fed_back, style


def prepare() -> Run:
    """As `main` does."""
    train = style("recsys")
    batch = next(train.Log(Path("data"), 19_200, 0).batches(128, np.random.default_rng(0)))
    table, net = train.init(0)
    return fed_back(train.update, (table, net, train.adam.init(net)), *batch)
