# %% [markdown]
# Digits, classified by a residual MLP whose gradients are accumulated over four microbatches:
# a batch of 256 with the memory of 64.

# %%
import argparse
import time
from collections.abc import Iterator
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy import ndimage
from sklearn.datasets import load_digits

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=1000)
parser.add_argument("--microbatch", type=int, default=64)
parser.add_argument("--accumulate", type=int, default=4)
parser.add_argument("--width", type=int, default=256)
parser.add_argument("--blocks", type=int, default=6)
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
rng = np.random.default_rng(args.seed)

# %% [markdown]
# ## Data: digits of 16 × 16 with thin and thick pens, turned and shifted a little

# %%
digits = load_digits()
drawn = np.kron(digits.images / 16, np.ones((1, 2, 2))).astype(np.float32)
thick, thin = (morph(drawn, (1, 2, 2)) for morph in (ndimage.grey_dilation, ndimage.grey_erosion))
images = np.concatenate([drawn, thick, thin])
labels = np.tile(digits.target.astype(np.int32), 3)


def augment(image: np.ndarray) -> np.ndarray:
    turned = ndimage.rotate(image, rng.uniform(-20, 20), reshape=False, order=1)
    return ndimage.shift(turned, rng.uniform(-2, 2, 2), order=1)


def microbatches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """One epoch; what does not fill a whole batch is left out."""
    batch = args.microbatch * args.accumulate
    order = rng.permutation(len(images))[: len(images) // batch * batch]
    for rows in order.reshape(-1, args.microbatch):
        x = np.stack([augment(images[row]) for row in rows])
        yield x.reshape(len(rows), -1), labels[rows]


# %% [markdown]
# ## Model


# %%
def init(key: jax.Array) -> dict:
    keys = iter(jax.random.split(key, args.blocks * 2 + 2))
    normal = jax.nn.initializers.he_normal()
    blocks = [
        {
            "scale": jnp.ones(args.width),
            "up": normal(next(keys), (args.width, args.width)),
            "down": normal(next(keys), (args.width, args.width)) * 0.1,
            "bias": jnp.zeros(args.width),
        }
        for _ in range(args.blocks)
    ]
    stem, head = normal(next(keys), (256, args.width)), normal(next(keys), (args.width, 10))
    return {"stem": stem, "blocks": blocks, "head": head}


def logits_of(params: dict, x: jax.Array) -> jax.Array:
    x = x @ params["stem"]
    for block in params["blocks"]:
        y = x * block["scale"] * jax.lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-6)
        x = x + jax.nn.relu(y @ block["up"] + block["bias"]) @ block["down"]
    return x @ params["head"]


# %% [markdown]
# ## Two functions: gradients of a microbatch, added to those before, and the update

# %%
optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3, weight_decay=0.01))


@partial(jax.jit, donate_argnums=1)
def add_grads(params: dict, total: dict, x: jax.Array, y: jax.Array) -> tuple[dict, jax.Array]:
    def loss_fn(params: dict) -> jax.Array:
        logits = logits_of(params, x)
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

    loss, grads = jax.value_and_grad(loss_fn)(params)
    return jax.tree.map(jnp.add, total, grads), loss


@partial(jax.jit, donate_argnums=(0, 1, 2))
def apply(params: dict, opt_state: optax.OptState, total: dict) -> tuple:
    grads = jax.tree.map(lambda g: g / args.accumulate, total)
    updates, opt_state = optimizer.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, jax.tree.map(jnp.zeros_like, total)


# %% [markdown]
# ## Training

# %%
params = init(jax.random.key(args.seed))
opt_state = optimizer.init(params)
total = jax.tree.map(jnp.zeros_like, params)

for epoch in range(args.epochs):
    start, count, losses = time.time(), 0, []
    for index, (x, y) in enumerate(microbatches(), start=1):
        total, loss = add_grads(params, total, x, y)
        losses.append(loss)
        count += len(x)
        if index % args.accumulate == 0:
            params, opt_state, total = apply(params, opt_state, total)
    mean = np.mean(jax.device_get(losses))
    jax.block_until_ready(params)
    print(
        f"epoch {epoch}: loss {mean:.4f}, {count / (time.time() - start):.0f} examples/s",
        flush=True,
    )

# %%
print("final loss", repr(float(losses[-1])))
