"""The two steps of gan."""

import jax
import numpy as np

from tests.clinic.loops import Run, style


def prepare() -> Run:
    """As `main` does."""
    train = style("gan")
    rng = np.random.default_rng(3)
    images = np.tile(train.load_digits().images / 16, (3, 1, 1))
    real, noise = jax.device_put(
        (
            next(train.reals(images, 64, rng)),
            tuple(rng.standard_normal((2, 64, train.NOISE), dtype=np.float32)),
        )
    )
    k1, k2 = jax.random.split(jax.random.PRNGKey(3))
    weights = (train.dense(k1, train.NOISE, 384, 384, 64), train.dense(k2, 64, 384, 384, 1))
    generator, critic = (train.Player(each, train.opt.init(each)) for each in weights)

    def run(n: int) -> None:
        nonlocal generator, critic
        losses = None
        for _ in range(n):
            critic, d = train.d_step(critic, generator.weights, real, noise[0])
            generator, g = train.g_step(generator, critic.weights, noise[1])
            losses = d, g
        jax.block_until_ready((generator, critic, losses))

    return run
