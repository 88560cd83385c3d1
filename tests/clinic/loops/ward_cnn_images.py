"""The step of the ward's cnn_images, without what `nnx.jit` does on the host."""

import jax
from flax import nnx

from tests.clinic.loops import Run, fed_back, ward


def prepare() -> Run:
    """As `main` does; the modules are given as their arrays."""
    train = ward("cnn_images")
    train.write_images(".", 10)
    batch = next(iter(train.ImageFolder(".", 64)))
    model = train.CNN(10, rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, train.optax.adam(1e-3), wrt=nnx.Param)
    graph, state = nnx.split((model, optimizer))
    arrays, tree = jax.tree.flatten(state)

    def step(
        arrays: list[jax.Array], x: jax.Array, y: jax.Array
    ) -> tuple[list[jax.Array], tuple[jax.Array, jax.Array]]:
        modules = nnx.merge(graph, jax.tree.unflatten(tree, arrays))
        made = train.train_step.__wrapped__(*modules, x, y)
        return jax.tree.leaves(nnx.state(modules)), made

    return fed_back(jax.jit(step), [arrays], *batch)
