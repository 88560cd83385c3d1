"""The step of the ward's spawn_audio."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from tests.clinic.loops import Run, fed_back, ward


def prepare() -> Run:
    """As `train` does, within which the functions are; clips are read in this process."""
    audio = ward("spawn_audio")
    bands, classes = audio.BANDS, audio.CLASSES
    k = jax.random.split(jax.random.key(0), 6)
    gru = {
        name: {
            "x": jax.random.normal(a, (bands, 160)) * 0.1,
            "h": jax.random.normal(b, (160, 160)) * 0.08,
        }
        for name, a, b in zip("zrc", k[:3], k[3:], strict=True)
    }
    params = {"gru": gru, "out": jax.random.normal(k[0], (160, classes)) * 0.1}
    tx = optax.chain(optax.clip(1.0), optax.rmsprop(1e-3))

    def logits(p: Any, x: jax.Array) -> jax.Array:
        def cell(h: jax.Array, x: jax.Array) -> tuple[jax.Array, None]:
            z = jax.nn.sigmoid(x @ p["gru"]["z"]["x"] + h @ p["gru"]["z"]["h"])
            r = jax.nn.sigmoid(x @ p["gru"]["r"]["x"] + h @ p["gru"]["r"]["h"])
            c = jnp.tanh(x @ p["gru"]["c"]["x"] + (r * h) @ p["gru"]["c"]["h"])
            return (1 - z) * h + z * c, None

        h, _ = jax.lax.scan(cell, jnp.zeros((x.shape[0], 160)), x.swapaxes(0, 1))
        return h @ p["out"]

    def step(params: Any, opt_state: Any, x: jax.Array, y: jax.Array) -> tuple[Any, Any, jax.Array]:
        def loss_fn(p: Any) -> jax.Array:
            return optax.softmax_cross_entropy_with_integer_labels(logits(p, x), y).mean()

        loss, grads = jax.value_and_grad(loss_fn)(params)
        updates, opt_state = tx.update(grads, opt_state)
        return optax.apply_updates(params, updates), opt_state, loss

    return fed_back(jax.jit(step), (params, tx.init(params)), *audio.load(range(16)))
