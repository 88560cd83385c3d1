"""The step of the ward's lstm_forecast, without what equinox's `filter_jit` does on the host."""

from functools import partial
from typing import Any

import equinox as eqx
import jax

from tests.clinic.loops import Run, fed_back, ward


def prepare() -> Run:
    """As `main` does; the batch is not donated, for it is needed again, and fits no result."""
    train = ward("lstm_forecast")
    batch = next(train.batches(*train.make_waves(4096, 48, 8, seed=0), 32, seed=1))
    arrays, static = eqx.partition(train.Forecaster(8, 128, key=jax.random.key(0)), eqx.is_array)
    optim = train.optax.adam(1e-3)
    update = train.make_step(optim).__wrapped__

    @partial(jax.jit, donate_argnums=(0, 1))
    def step(arrays: Any, opt_state: Any, x: jax.Array, y: jax.Array) -> tuple[Any, Any, jax.Array]:
        model, opt_state, loss = update(eqx.combine(arrays, static), opt_state, x, y)
        return eqx.filter(model, eqx.is_array), opt_state, loss

    return fed_back(step, (arrays, optim.init(arrays)), *batch)
