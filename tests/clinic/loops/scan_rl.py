"""The two functions of scan_rl: episodes, and what is learnt of them."""

import jax
import numpy as np

from tests.clinic.loops import Run, style


def prepare() -> Run:
    """As `main` does."""
    train = style("scan_rl")
    task = jax.device_put(train.draw_tasks(np.random.default_rng(1), 64))
    key, sub = jax.random.split(jax.random.key(1))
    params = train.init(sub, 32)
    opt_state = train.optimizer.init(params)
    _, sub = jax.random.split(key)

    def run(n: int) -> None:
        nonlocal params, opt_state
        length = None
        for _ in range(n):
            trajectory = train.rollout(params, task, sub)
            params, opt_state, length = train.learn(params, opt_state, trajectory)
        jax.block_until_ready((params, opt_state, length))

    return run
