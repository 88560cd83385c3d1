"""The function that the ward's model_server calls with a batch of requests."""

import jax
import numpy as np

from tests.clinic.loops import Run, ward


def prepare() -> Run:
    """As `main` and `Scorer` do, with a full batch."""
    server = ward("model_server")
    params = server.init(jax.random.key(0))
    rng = np.random.default_rng(0)
    batch = rng.standard_normal((server.CLIENTS, server.FEATURES), dtype=np.float32)
    features = jax.device_put(batch)

    def run(n: int) -> None:
        jax.block_until_ready([server.score(params, features) for _ in range(n)])

    return run
