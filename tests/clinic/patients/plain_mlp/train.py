"""Trains a multilayer perceptron on noisy feature vectors, with momentum written by hand."""

import argparse
import time
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

CLASSES, FEATURES, EXAMPLES = 10, 256, 6400
SIZES = [FEATURES, 896, 896, 896, CLASSES]
MOMENTUM = 0.9

Params = list[dict[str, jax.Array]]


def load_features(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Features and labels; written at the first call."""
    file = folder / "features.npz"
    if not file.exists():
        rng = np.random.default_rng(7)
        labels = rng.integers(0, CLASSES, EXAMPLES)
        centres = rng.normal(size=(CLASSES, 2, FEATURES))
        which = rng.integers(0, 2, EXAMPLES)
        features = centres[labels, which] + 2.5 * rng.normal(size=(EXAMPLES, FEATURES))
        folder.mkdir(exist_ok=True)
        np.savez(file, x=features.astype(np.float32), y=labels.astype(np.int32))
    arrays = np.load(file)
    return arrays["x"], arrays["y"]


def init_params(seed: int) -> Params:
    """He initialisation."""
    rng = np.random.default_rng(seed)
    params = []
    for fan_in, fan_out in pairwise(SIZES):
        weights = rng.normal(scale=np.sqrt(2 / fan_in), size=(fan_in, fan_out))
        params.append({"w": jnp.asarray(weights), "b": jnp.zeros(fan_out)})
    return params


def forward(params: Params, x: jax.Array) -> jax.Array:
    """Logits."""
    *hidden, last = params
    for layer in hidden:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return x @ last["w"] + last["b"]


def loss_fn(params: Params, x: jax.Array, y: jax.Array) -> jax.Array:
    """Cross entropy, and a little weight decay."""
    log_probs = jax.nn.log_softmax(forward(params, x))
    decay = sum(jnp.sum(layer["w"] ** 2) for layer in params)
    return -jnp.mean(log_probs[jnp.arange(len(y)), y]) + 1e-5 * decay


@partial(jax.jit, donate_argnums=(0, 1))
def train_step(
    params: Params, velocity: Params, x: jax.Array, y: jax.Array, learning_rate: float
) -> tuple[Params, Params, jax.Array]:
    """One step of momentum."""
    loss, grads = jax.value_and_grad(loss_fn)(params, x, y)
    velocity = jax.tree.map(lambda v, g: MOMENTUM * v - learning_rate * g, velocity, grads)
    params = jax.tree.map(jnp.add, params, velocity)
    return params, velocity, loss


def batches(
    x: np.ndarray, y: np.ndarray, size: int, rng: np.random.Generator
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Shuffled, with some features blanked."""
    order = rng.permutation(len(x))
    for start in range(0, len(x) - size + 1, size):
        chosen = order[start : start + size]
        kept = rng.random((size, x.shape[1]), dtype=np.float32) > 0.1
        yield x[chosen] * kept, y[chosen]


def main() -> None:
    """Parse the arguments, train, save the parameters."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=1000)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=0.01)
    parser.add_argument("--decay", type=float, default=0.99, help="of the rate, per epoch")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    x, y = load_features(Path("data"))
    params = init_params(args.seed)
    velocity = jax.tree.map(jnp.zeros_like, params)
    rng = np.random.default_rng(args.seed)
    for epoch in range(args.epochs):
        learning_rate = args.learning_rate * args.decay**epoch
        start, seen = time.perf_counter(), 0
        for xs, ys in batches(x, y, args.batch_size, rng):
            params, velocity, loss = train_step(params, velocity, xs, ys, learning_rate)
            seen += len(xs)
        final_loss = float(loss)
        rate = seen / (time.perf_counter() - start)
        print(f"epoch {epoch}: loss {final_loss:.4f}, {rate:.1f} examples/s", flush=True)
    flat = {f"{key}{i}": layer[key] for i, layer in enumerate(params) for key in layer}
    np.savez("result.npz", **flat)
    print(f"final loss {final_loss!r}")


if __name__ == "__main__":
    main()
