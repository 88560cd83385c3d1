"""A small vision transformer (flax.nnx) trained with feature distillation."""
import argparse
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

SIDE = 32
PATCH = 8
TOKENS = (SIDE // PATCH) ** 2
TEACHER_DIM = 64


class Attention(nnx.Module):
    def __init__(self, dim: int, heads: int, *, rngs: nnx.Rngs):
        self.heads = heads
        self.qkv = nnx.Linear(dim, 3 * dim, rngs=rngs)
        self.out = nnx.Linear(dim, dim, rngs=rngs)

    def __call__(self, x):
        b, t, d = x.shape
        q, k, v = jnp.split(self.qkv(x).reshape(b, t, 3 * self.heads, -1), 3, axis=2)
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / (d // self.heads) ** 0.5
        mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, axis=-1), v)
        return self.out(mixed.reshape(b, t, d))


class EncoderBlock(nnx.Module):
    def __init__(self, dim: int, heads: int, *, rngs: nnx.Rngs):
        self.norm1 = nnx.LayerNorm(dim, rngs=rngs)
        self.attention = Attention(dim, heads, rngs=rngs)
        self.norm2 = nnx.LayerNorm(dim, rngs=rngs)
        self.up = nnx.Linear(dim, 2 * dim, rngs=rngs)
        self.down = nnx.Linear(2 * dim, dim, rngs=rngs)

    def __call__(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(jax.nn.gelu(self.up(self.norm2(x))))


class ViT(nnx.Module):
    def __init__(self, dim: int, depth: int, heads: int, classes: int, *, rngs: nnx.Rngs):
        self.patches = nnx.Linear(PATCH * PATCH * 3, dim, rngs=rngs)
        self.position = nnx.Param(0.02 * jax.random.normal(rngs.params(), (TOKENS, dim)))
        self.blocks = nnx.List([EncoderBlock(dim, heads, rngs=rngs) for _ in range(depth)])
        self.norm = nnx.LayerNorm(dim, rngs=rngs)
        self.head = nnx.Linear(dim, classes, rngs=rngs)
        self.distill_head = nnx.Linear(dim, TEACHER_DIM, rngs=rngs)

    def __call__(self, images):
        n = SIDE // PATCH
        x = images.reshape(-1, n, PATCH, n, PATCH, 3).transpose(0, 1, 3, 2, 4, 5)
        x = self.patches(x.reshape(-1, TOKENS, PATCH * PATCH * 3)) + self.position[...]
        for block in self.blocks:
            x = block(x)
        tokens = self.norm(x)
        pooled = tokens.mean(axis=1)
        return self.head(pooled), self.distill_head(pooled), tokens


def make_images(count, classes, seed=0):
    rng = np.random.default_rng(seed)
    templates = rng.standard_normal((classes, 8, 8, 3), dtype=np.float32)
    labels = rng.integers(classes, size=count).astype(np.int32)
    images = templates[labels].repeat(4, axis=1).repeat(4, axis=2)
    images += 0.7 * rng.standard_normal(images.shape, dtype=np.float32)
    return images, labels


def make_teacher(seed=1, width=512):
    """Frozen random-feature network whose embedding the student regresses."""
    rng = np.random.default_rng(seed)
    pixels = SIDE * SIDE * 3
    shapes = [(pixels, width), (width, width), (width, TEACHER_DIM)]
    return [jnp.asarray(rng.standard_normal(s, dtype=np.float32) / s[0] ** 0.5) for s in shapes]


@jax.jit
def teacher_embed(weights, images, index):
    x = images[index].reshape(index.shape[0], -1)
    for w in weights[:-1]:
        x = jax.nn.relu(x @ w)
    x = x @ weights[-1]
    return x / jnp.linalg.norm(x, axis=-1, keepdims=True)


def make_train_step(graphdef, tx):
    @partial(jax.jit, donate_argnums=(0, 1))
    def train_step(params, opt_state, images, labels, index, target):
        x, y = images[index], labels[index]

        def loss_fn(params):
            logits, embedding, tokens = nnx.merge(graphdef, params)(x)
            ce = optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()
            distance = optax.cosine_distance(embedding, target, epsilon=1e-6).mean()
            return ce + 0.5 * distance, (ce, tokens)

        (loss, (ce, tokens)), grads = jax.value_and_grad(loss_fn, has_aux=True)(params)
        updates, opt_state = tx.update(grads, opt_state, params)
        params = optax.apply_updates(params, updates)
        return params, opt_state, {"loss": loss, "ce": ce, "spread": tokens.std()}

    return train_step


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("steps", nargs="?", type=int, default=10000)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--images", type=int, default=4000)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--log-every", type=int, default=50)
    args = parser.parse_args()

    images, labels = make_images(args.images, args.classes)
    images, labels = jnp.asarray(images), jnp.asarray(labels)
    teacher = make_teacher()
    model = ViT(args.dim, args.depth, args.heads, args.classes, rngs=nnx.Rngs(0))
    graphdef, params = nnx.split(model, nnx.Param)
    tx = optax.adamw(args.lr, weight_decay=0.01)
    opt_state = tx.init(params)
    train_step = make_train_step(graphdef, tx)

    rng = np.random.default_rng(2)
    for step in range(1, args.steps + 11):
        index = rng.integers(args.images, size=args.batch, dtype=np.int32)
        target = teacher_embed(teacher, images, index)
        params, opt_state, metrics = train_step(params, opt_state, images, labels, index, target)
        if step % args.log_every == 0:
            print(f"step {step} loss {metrics['loss']:.4f} ce {metrics['ce']:.4f}", flush=True)
        if step == 10:
            jax.block_until_ready((params, opt_state))
            began = time.perf_counter()
    jax.block_until_ready((params, opt_state))
    print(f"done {args.steps} steps in {time.perf_counter() - began:.2f} s")


if __name__ == "__main__":
    main()
