"""Distil a frozen ViT teacher into a smaller ViT student (flax.linen).

One optimiser step = ACCUM microbatches, accumulated in a lax.scan.
Usage: python distil_vit.py [STEPS]
"""
import sys
import time

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct

CFG = dict(
    image=24, patch=4, classes=20,
    teacher=dict(dim=96, depth=3, heads=4),
    student=dict(dim=64, depth=2, heads=4),
    micro=32, accum=2, temperature=3.0, alpha=0.7,
    lr=1e-3, eval_every=400,
)


class Block(nn.Module):
    dim: int
    heads: int

    @nn.compact
    def __call__(self, x):
        b, n, _ = x.shape
        hd = self.dim // self.heads
        y = nn.LayerNorm()(x)
        q, k, v = jnp.split(nn.Dense(3 * self.dim, use_bias=False)(y), 3, axis=-1)
        q, k, v = (a.reshape(b, n, self.heads, hd) for a in (q, k, v))
        att = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) / hd**0.5)
        y = jnp.einsum("bhqk,bkhd->bqhd", att, v).reshape(b, n, self.dim)
        x = x + nn.Dense(self.dim)(y)
        y = nn.Dense(2 * self.dim)(nn.LayerNorm()(x))
        return x + nn.Dense(self.dim)(nn.gelu(y))


class ViT(nn.Module):
    dim: int
    depth: int
    heads: int
    classes: int
    patch: int

    @nn.compact
    def __call__(self, img):
        b, h, w, c = img.shape
        p = self.patch
        x = img.reshape(b, h // p, p, w // p, p, c).transpose(0, 1, 3, 2, 4, 5)
        x = nn.Dense(self.dim)(x.reshape(b, -1, p * p * c))
        x = x + self.param("pos", nn.initializers.normal(0.02), (1, x.shape[1], self.dim))
        for _ in range(self.depth):
            x = Block(self.dim, self.heads)(x)
        return nn.Dense(self.classes)(nn.LayerNorm()(x).mean(1))


class Learner(struct.PyTreeNode):
    params: dict
    opt_state: optax.OptState
    rng: jax.Array


def build(name):
    return ViT(classes=CFG["classes"], patch=CFG["patch"], **CFG[name])


teacher, student = build("teacher"), build("student")
tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(CFG["lr"], weight_decay=0.01))


def textures(n, seed=0):
    """Class = orientation/frequency of a grating; returns uint8 images and labels."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CFG["classes"], n)
    g = np.linspace(0, 2 * np.pi, CFG["image"], dtype=np.float32)
    ang = (y * np.pi / CFG["classes"])[:, None, None].astype(np.float32)
    wave = np.sin((2 + y % 3)[:, None, None] * (np.cos(ang) * g[None, :, None] + np.sin(ang) * g[None, None, :]))
    img = wave[..., None] * rng.uniform(0.4, 1, (n, 1, 1, 3)) + 0.3 * rng.standard_normal(wave.shape + (3,), dtype=np.float32)
    return np.clip(127 + 80 * img, 0, 255).astype(np.uint8), y.astype(np.int32)


def augment(key, img):
    """uint8 -> float, random flip and brightness, on the device."""
    kf, kb = jax.random.split(key)
    x = img.astype(jnp.float32) / 255.0
    flip = jax.random.bernoulli(kf, 0.5, (x.shape[0], 1, 1, 1))
    x = jnp.where(flip, x[:, :, ::-1], x)
    return x + 0.1 * jax.random.normal(kb, (x.shape[0], 1, 1, 1))


def distil_loss(params, t_params, img, label):
    T = CFG["temperature"]
    t_logits = jax.lax.stop_gradient(teacher.apply(t_params, img))
    s_logits = student.apply(params, img)
    soft = optax.softmax_cross_entropy(s_logits / T, jax.nn.softmax(t_logits / T)).mean() * T * T
    hard = optax.softmax_cross_entropy_with_integer_labels(s_logits, label).mean()
    return CFG["alpha"] * soft + (1 - CFG["alpha"]) * hard


def train_step(learner, t_params, imgs, labels):
    rng, sub = jax.random.split(learner.rng)

    def micro(acc, xs):
        img, label, key = xs
        loss, g = jax.value_and_grad(distil_loss)(learner.params, t_params, augment(key, img), label)
        return jax.tree.map(jnp.add, acc, g), loss

    keys = jax.random.split(sub, CFG["accum"])
    zeros = jax.tree.map(jnp.zeros_like, learner.params)
    grads, losses = jax.lax.scan(micro, zeros, (imgs, labels, keys))
    grads = jax.tree.map(lambda g: g / CFG["accum"], grads)
    upd, opt_state = tx.update(grads, learner.opt_state, learner.params)
    params = optax.apply_updates(learner.params, upd)
    return Learner(params=params, opt_state=opt_state, rng=rng), losses.mean()


step = jax.jit(train_step, donate_argnums=0)


@jax.jit
def accuracy(params, img, label):
    return jnp.mean(student.apply(params, img.astype(jnp.float32) / 255.0).argmax(-1) == label)


def stream(images, labels):
    shape = (CFG["accum"], CFG["micro"])
    rng = np.random.default_rng(17)
    n = CFG["accum"] * CFG["micro"]
    while True:
        order = rng.permutation(len(images))
        for i in range(0, len(order) - n + 1, n):
            take = order[i:i + n]
            yield images[take].reshape(shape + images.shape[1:]), labels[take].reshape(shape)


def run(steps):
    images, labels = textures(6000)
    held = tuple(map(jnp.asarray, textures(256, seed=1)))
    probe = jnp.zeros((1, CFG["image"], CFG["image"], 3))
    t_params = teacher.init(jax.random.key(99), probe)
    params = student.init(jax.random.key(1), probe)
    learner = Learner(params=params, opt_state=tx.init(params), rng=jax.random.key(2))
    it = stream(images, labels)
    for _ in range(4):
        learner, loss = step(learner, t_params, *next(it))
    accuracy(learner.params, *held).block_until_ready()

    begin = time.perf_counter()
    for k in range(1, steps + 1):
        learner, loss = step(learner, t_params, *next(it))
        if k % CFG["eval_every"] == 0:
            print(f"{k}: loss {float(loss):.3f} held-out acc {float(accuracy(learner.params, *held)):.3f}")
    jax.block_until_ready((learner.params, loss))
    print(f"done {steps} steps in {time.perf_counter() - begin:.4f} s")


if __name__ == "__main__":
    run(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000)
