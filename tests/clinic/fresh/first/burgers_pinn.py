"""Physics-informed network for viscous Burgers: u_t + u u_x = nu u_xx on [-1, 1].

    python healthy.py [STEPS]
"""
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 15000
warmup = 10
batch = 2048
edge_batch = 256
width, depth = 24, 4
nu = 0.01 / np.pi
lr, beta1, beta2 = 1e-3, 0.9, 0.999

# Points, drawn once and then visited in slices.
rng = np.random.default_rng(0)
inside = rng.uniform((0.0, -1.0), (1.0, 1.0), size=(batch * 100, 2)).astype(np.float32)
start_x = rng.uniform(-1.0, 1.0, size=(edge_batch * 100, 1)).astype(np.float32)
wall_t = rng.uniform(0.0, 1.0, size=(edge_batch * 100, 1)).astype(np.float32)

# Weights.
sizes = [2] + [width] * depth + [1]
keys = jax.random.split(jax.random.key(0), len(sizes) - 1)
params = [
    (jax.random.normal(k, (m, n)) * (1.0 / m) ** 0.5, jnp.zeros((n,)))
    for k, m, n in zip(keys, sizes[:-1], sizes[1:])
]


def u(params, t, x):
    h = jnp.stack([t, x])
    for w, b in params[:-1]:
        h = jnp.tanh(h @ w + b)
    w, b = params[-1]
    return (h @ w + b)[0]


u_t = jax.grad(u, argnums=1)
u_x = jax.grad(u, argnums=2)
u_xx = jax.grad(u_x, argnums=2)


def residual(params, points):
    def at(p):
        t, x = p
        return u_t(params, t, x) + u(params, t, x) * u_x(params, t, x) - nu * u_xx(params, t, x)

    return jax.vmap(at)(points)


def edge_error(params, x0, tw):
    values = jax.vmap(u, in_axes=(None, None, 0))
    initial = values(params, 0.0, x0[:, 0]) + jnp.sin(jnp.pi * x0[:, 0])
    walls = jax.vmap(u, in_axes=(None, 0, None))
    return jnp.mean(initial**2) + jnp.mean(walls(params, tw[:, 0], 1.0) ** 2 + walls(params, tw[:, 0], -1.0) ** 2)


def loss_fn(params, points, x0, tw, weight):
    return jnp.mean(residual(params, points) ** 2) + weight * edge_error(params, x0, tw)


def adam_step(params, m, v, count, points, x0, tw, weight):
    loss, grads = jax.value_and_grad(loss_fn)(params, points, x0, tw, weight)
    count = count + 1
    m = jax.tree.map(lambda a, g: beta1 * a + (1 - beta1) * g, m, grads)
    v = jax.tree.map(lambda a, g: beta2 * a + (1 - beta2) * g * g, v, grads)
    scale = lr * jnp.sqrt(1 - beta2**count) / (1 - beta1**count)
    params = jax.tree.map(lambda p, a, s: p - scale * a / (jnp.sqrt(s) + 1e-8), params, m, v)
    return params, m, v, count, loss


step_fn = jax.jit(adam_step, donate_argnums=(0, 1, 2, 3))
balance = jax.jit(lambda p, z, old: 0.9 * old + 0.1 * jnp.clip(1e-2 / jnp.mean(residual(p, z) ** 2), 1.0, 50.0))

m = jax.tree.map(jnp.zeros_like, params)
v = jax.tree.map(jnp.zeros_like, params)
count = jnp.zeros(())
weight = jnp.ones(())
began = 0.0

for i in range(warmup + steps):
    if i == warmup:
        jax.block_until_ready(params)
        began = time.perf_counter()
    at = i % 100
    points = inside[at * batch : (at + 1) * batch]
    x0 = start_x[at * edge_batch : (at + 1) * edge_batch]
    tw = wall_t[at * edge_batch : (at + 1) * edge_batch]
    if i % 20 == 0:
        weight = balance(params, points, weight)
    params, m, v, count, loss = step_fn(params, m, v, count, points, x0, tw, weight)
    if i % 100 == 0:
        print(f"{i:6d} loss {float(loss):.3e} weight {float(weight):.2f}", flush=True)

jax.block_until_ready(params)
print(f"done {steps} steps in {time.perf_counter() - began:.2f} s")
