"""python -m trainer [--epochs N] [--batch_size N] …"""

import logging
import sys
import time

import jax
import numpy as np

from .config import Config, apply, from_command_line
from .data import Records, terrain
from .model import initial, train_step

log = logging.getLogger("trainer")


def train(config: Config) -> None:
    apply(config)
    records = Records(config)
    table = jax.device_put(terrain(config))
    state = initial(config)
    log.info("%d batches of %d on %s", len(records), config.batch_size, jax.devices()[0])
    for epoch in range(config.epochs):
        start = time.perf_counter()
        for batch in records:
            state, loss = train_step(state, table, batch, config)
        last = float(loss)
        speed = len(records) * config.batch_size / (time.perf_counter() - start)
        log.info("epoch %d: loss %.4f, %.0f examples/s", epoch, last, speed)
    np.savez("params.npz", **state.params)
    log.info("last loss %r", last)


if __name__ == "__main__":
    logging.basicConfig(
        stream=sys.stdout, level=logging.INFO, format="%(asctime)s %(name)s: %(message)s"
    )
    train(from_command_line())
