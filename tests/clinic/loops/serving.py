"""The function that serving's worker calls with a batch of requests."""

import jax
import numpy as np

from tests.clinic.loops import Run, style


def prepare() -> Run:
    """As `main` and `Server.work` do, with a full batch."""
    serve = style("serving", "serve")
    weights = serve.load_model(0)
    requests = np.random.default_rng(9).normal(size=(64, serve.FEATURES))
    batch = jax.device_put(requests.astype(np.float32))

    def run(n: int) -> None:
        jax.block_until_ready([serve.classify(weights, batch) for _ in range(n)])

    return run
