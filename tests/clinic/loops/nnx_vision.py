"""The step of nnx_vision, without what `nnx.jit` does on the host."""

from functools import partial

import jax
from flax import nnx

from tests.clinic.loops import Run, fed_back, style


def prepare() -> Run:
    """As `main` and `fit` do; the modules are given as their arrays."""
    train = style("nnx_vision")
    trainer = train.Trainer(train.CNN(32, rngs=nnx.Rngs(0)), 1e-3)
    trainer.model.train()
    graph, state = nnx.split((trainer.model, trainer.optimizer, trainer.metrics))
    arrays, tree = jax.tree.flatten(state)

    @partial(jax.jit, donate_argnums=0)
    def step(
        arrays: list[jax.Array], images: jax.Array, labels: jax.Array
    ) -> tuple[list[jax.Array], None]:
        modules = nnx.merge(graph, jax.tree.unflatten(tree, arrays))
        train.train_step.__wrapped__(*modules, images, labels)
        return jax.tree.leaves(nnx.state(modules)), None

    return fed_back(step, [arrays], *next(iter(train.Digits(64, 0))))
