"""The step of grad_accum: the gradients of four microbatches, and the update."""

import sys
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp

from tests.clinic.loops import PATIENTS, Run


def prepare() -> Run:
    """As the script does, which has no `main`: it is run up to its training."""
    file = PATIENTS / "grad_accum" / "train.py"
    train: Any = ModuleType("train")
    sys.argv = [str(file)]
    exec(compile(file.read_text().split("# ## Training")[0], file, "exec"), vars(train))
    microbatches = train.microbatches()
    batches = [jax.device_put(next(microbatches)) for _ in range(train.args.accumulate)]
    params = train.init(jax.random.key(0))
    opt_state = train.optimizer.init(params)
    total = jax.tree.map(jnp.zeros_like, params)

    def run(n: int) -> None:
        nonlocal params, opt_state, total
        loss = None
        for _ in range(n):
            for x, y in batches:
                total, loss = train.add_grads(params, total, x, y)
            params, opt_state, total = train.apply(params, opt_state, total)
        jax.block_until_ready((params, opt_state, total, loss))

    return run
