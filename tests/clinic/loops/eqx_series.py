"""The step of eqx_series, without what equinox's `filter_jit` does on the host."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import numpy as np

from tests.clinic.loops import Run, fed_back, style


def prepare() -> Run:
    """As `main` does; the batch is not donated, for it is needed again, and fits no result."""
    train = style("eqx_series")
    series = train.simulate()[:, :-80]
    batch = next(train.windows(series, 64, 1, np.random.default_rng(0)))
    model = train.Forecaster(64, jax.random.key(0))
    arrays, static = eqx.partition(model, eqx.is_array)

    @partial(jax.jit, donate_argnums=(0, 1))
    def step(arrays: Any, opt_state: Any, *batch: jax.Array) -> tuple[Any, Any, Any]:
        model = eqx.combine(arrays, static)
        model, opt_state, *made = train.make_step.__wrapped__(model, opt_state, *batch)
        return eqx.filter(model, eqx.is_array), opt_state, made

    return fed_back(step, (arrays, train.optimizer.init(arrays)), *batch)
