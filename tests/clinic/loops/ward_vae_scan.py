"""The step of the ward's vae_scan: ten updates in one call."""

import jax
import numpy as np

from tests.clinic.loops import Run, fed_back, ward


def prepare() -> Run:
    """As `main` does."""
    train = ward("vae_scan")
    rng = np.random.default_rng(0)
    protos = (rng.random((32, 784)) < 0.3).astype(np.float32)
    noise = rng.random((30000, 784), dtype=np.float32) < 0.05
    data = np.abs(protos[rng.integers(0, 32, 30000)] - noise).astype(np.float32)
    tx = train.optax.adam(1e-3)
    params = train.init(jax.random.key(0), 784, 256)
    carry = train.Carry(params, tx.init(params), jax.random.key(1))
    idx = rng.integers(0, len(data), (train.INNER, 128))
    return fed_back(train.build_epoch_fn(tx, 128), [carry], data, idx)
