"""The step of pinn."""

from functools import partial
from typing import Any

import jax

from tests.clinic.loops import Run, fed_back, style


def prepare() -> Run:
    """As `main` does; the key is the first step's."""
    train = style("pinn")
    optax = train.optax
    key = jax.random.key(0)
    params = train.network(key, 64, 4)
    optimizer = optax.adam(optax.exponential_decay(1e-3, 2000, 0.9))

    @partial(jax.jit, donate_argnums=(0, 1))
    def step(params: Any, opt_state: Any, step_key: jax.Array) -> tuple[Any, Any, jax.Array]:
        loss, grads = jax.value_and_grad(train.loss_fn)(params, step_key, 512)
        updates, opt_state = optimizer.update(grads, opt_state)
        return optax.apply_updates(params, updates), opt_state, loss

    return fed_back(step, (params, optimizer.init(params)), jax.random.fold_in(key, 0))
