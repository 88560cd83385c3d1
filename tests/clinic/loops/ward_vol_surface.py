"""The step of the ward's vol_surface: an iteration of L-BFGS.

How many evaluations an iteration needs depends on how far the fit is. So the days follow each other
as in the script, forty iterations each, which begin with a fresh state of the optimiser.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from tests.clinic.loops import Run, ward

PER_DAY, DAYS = 40, 11


def prepare() -> Run:
    """As `main` does, within which the function is; the days' quotes are made before."""
    train = ward("vol_surface")
    strikes, maturities = jax.device_put(train.make_grid())
    model = train.SurfaceModel(strikes, maturities, prior_scale=2.0)
    keys = jax.random.split(jax.random.key(0), DAYS)
    days = [train.market(key, strikes, maturities) for key in keys]
    theta = {name: jnp.zeros(12) for name in ("a", "b", "rho", "m", "s")}
    tx = optax.lbfgs(memory_size=8)
    opt_state = fresh = tx.init(theta)
    steps = 0

    def objective(theta: Any, quotes: jax.Array) -> jax.Array:
        return -model.log_density(theta, quotes)

    value_and_grad = optax.value_and_grad_from_state(objective)

    def iterate(theta: Any, opt_state: Any, quotes: jax.Array) -> tuple[Any, Any, jax.Array]:
        value, grad = value_and_grad(theta, quotes, state=opt_state)
        updates, opt_state = tx.update(
            grad, opt_state, theta, value=value, grad=grad, value_fn=objective, quotes=quotes
        )
        return optax.apply_updates(theta, updates), opt_state, value

    iterate = jax.jit(iterate)

    def run(n: int) -> None:
        nonlocal theta, opt_state, steps
        value = None
        for _ in range(n):
            day, iteration = divmod(steps, PER_DAY)
            if iteration == 0:
                opt_state = fresh
            theta, opt_state, value = iterate(theta, opt_state, days[day % DAYS])
            steps += 1
        jax.block_until_ready((theta, opt_state, value))

    return run
