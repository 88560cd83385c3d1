"""Trains a transformer, sized for a GPU, with one fault by name: for tests.clinic.gpu."""

# ruff: noqa: ANN001, ANN002, ANN201, ANN202 -- written as people write scripts

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

parser = argparse.ArgumentParser()
parser.add_argument("--fault", default="none")
parser.add_argument("--steps", type=int, default=3000)
args = parser.parse_args()
F = args.fault
if F == "x64":
    jax.config.update("jax_enable_x64", True)
D, L, T, V, H = 768, 8, 256, 8192, 12
B = 2 if F == "small" else 32
DT = jnp.float64 if F == "x64" else jnp.bfloat16
rng = np.random.default_rng(0)
corpus = rng.integers(0, V, 4_000_000)


def init(key):
    def w(*s):
        return jnp.asarray(rng.normal(size=s) * 0.02, jnp.float64 if F == "x64" else jnp.float32)

    return {
        "emb": w(V, D),
        "layers": [
            {"qkv": w(D, 3 * D), "o": w(D, D), "a": w(D, 4 * D), "b": w(4 * D, D)} for _ in range(L)
        ],
    }


def norm(x):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)


def forward(p, tokens):
    x = p["emb"][tokens].astype(DT)
    mask = jnp.tril(jnp.ones((tokens.shape[1], tokens.shape[1]), bool))
    for layer in p["layers"]:
        q, k, v = jnp.split(norm(x) @ layer["qkv"].astype(DT), 3, -1)
        q, k, v = (
            a.reshape(a.shape[0], a.shape[1], H, D // H).transpose(0, 2, 1, 3) for a in (q, k, v)
        )
        s = jnp.where(
            mask, (q @ k.transpose(0, 1, 3, 2)).astype(jnp.float32) * (D // H) ** -0.5, -1e9
        )
        a = jax.nn.softmax(s).astype(DT) @ v
        x = x + a.transpose(0, 2, 1, 3).reshape(x.shape) @ layer["o"].astype(DT)
        x = x + jax.nn.gelu(norm(x) @ layer["a"].astype(DT)) @ layer["b"].astype(DT)
    return norm(x) @ p["emb"].T.astype(DT)


def loss_fn(p, tokens):
    logits = forward(p, tokens[:, :-1]).astype(jnp.float32)
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()


opt = optax.adamw(3e-4)


def update(p, s, tokens):
    loss, g = jax.value_and_grad(loss_fn)(p, tokens)
    u, s = opt.update(g, s, p)
    return optax.apply_updates(p, u), s, loss


step = jax.jit(update, donate_argnums=(0, 1))
params = init(0)
state = opt.init(params)


def batches():
    while True:
        n = T + 1 if F != "varlen" else 64 + 16 * int(rng.integers(0, 12)) + 1
        i = rng.integers(0, len(corpus) - n, B)
        tokens = np.stack([corpus[j : j + n] for j in i]).astype(np.int32)
        if F == "etl":
            for row in tokens:  # "augmentation" in Python
                for j in range(0, n, 2):
                    row[j] = (int(row[j]) * 31 + j) % V
        yield tokens


begin = time.time()
for i, tokens in zip(range(args.steps), batches(), strict=False):
    if F == "upload":
        onehot = np.zeros((B * 4096, 512), np.float32)
        onehot[:, 0] = 1
        jnp.asarray(onehot).sum()
    params, state, loss = step(params, state, tokens)
    if F == "sync":
        print(i, float(loss), time.time() - begin)
    elif i % 100 == 0:
        print(i, float(loss), time.time() - begin, flush=True)
