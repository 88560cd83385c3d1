"""A physics-informed network for the viscous Burgers equation, in plain JAX.

u_t + u u_x = nu u_xx on [-1, 1] x [0, 1], u(x, 0) = -sin(pi x), u(-1, t) = u(1, t) = 0
(Raissi, Perdikaris & Karniadakis 2019). Collocation points are drawn on the device.
"""

import argparse
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax

NU = 0.01 / np.pi
Params = list[tuple[jax.Array, jax.Array]]


def network(key: jax.Array, width: int, depth: int) -> Params:
    sizes = [2, *[width] * depth, 1]
    keys = jax.random.split(key, len(sizes) - 1)
    xavier = jax.nn.initializers.glorot_normal()
    return [
        (xavier(k, (m, n)), jnp.zeros(n)) for k, m, n in zip(keys, sizes, sizes[1:], strict=False)
    ]


def u(params: Params, x: jax.Array, t: jax.Array) -> jax.Array:
    """The network at one point."""
    h = jnp.stack([x, t])
    for w, b in params[:-1]:
        h = jnp.sin(h @ w + b)
    w, b = params[-1]
    return (h @ w + b)[0]


def residual(params: Params, x: jax.Array, t: jax.Array) -> jax.Array:
    """How far the equation is from holding at one point."""
    value, u_x = jax.value_and_grad(u, argnums=1)(params, x, t)
    u_t = jax.grad(u, argnums=2)(params, x, t)
    _, u_xx = jax.jvp(lambda x: jax.grad(u, argnums=1)(params, x, t), (x,), (jnp.ones_like(x),))
    return u_t + value * u_x - NU * u_xx


def loss_fn(params: Params, key: jax.Array, points: int) -> jax.Array:
    inside, start, edge = jax.random.split(key, 3)
    x, t = jax.random.uniform(inside, (2, points)) * jnp.array([[2.0], [1.0]]) - jnp.array(
        [[1.0], [0.0]]
    )
    equation = jax.vmap(residual, (None, 0, 0))(params, x, t)
    x0 = jax.random.uniform(start, (points // 8,), minval=-1.0)
    initial = jax.vmap(u, (None, 0, None))(params, x0, jnp.float32(0)) + jnp.sin(jnp.pi * x0)
    tb = jax.random.uniform(edge, (points // 8,))
    sides = [jax.vmap(u, (None, None, 0))(params, jnp.float32(side), tb) for side in (-1, 1)]
    boundary = jnp.concatenate(sides)
    return (equation**2).mean() + (initial**2).mean() + (boundary**2).mean()


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--epochs", type=int, default=1000)
    ap.add_argument("--points", type=int, default=512)
    ap.add_argument("--width", type=int, default=64)
    ap.add_argument("--depth", type=int, default=4)
    ap.add_argument("--seed", type=int, default=0)
    opts = ap.parse_args()

    key = jax.random.key(opts.seed)
    params = network(key, opts.width, opts.depth)
    optimizer = optax.adam(optax.exponential_decay(1e-3, 2000, 0.9))
    opt_state = optimizer.init(params)

    @partial(jax.jit, donate_argnums=(0, 1))
    def step(
        params: Params, opt_state: optax.OptState, step_key: jax.Array
    ) -> tuple[Params, optax.OptState, jax.Array]:
        loss, grads = jax.value_and_grad(loss_fn)(params, step_key, opts.points)
        updates, opt_state = optimizer.update(grads, opt_state)
        return optax.apply_updates(params, updates), opt_state, loss

    steps = 200
    for epoch in range(opts.epochs):
        began = time.perf_counter()
        for number in range(steps):
            step_key = jax.random.fold_in(key, epoch * steps + number)
            params, opt_state, loss = step(params, opt_state, step_key)
        loss = float(loss)
        rate = steps * opts.points / (time.perf_counter() - began)
        print(f"epoch {epoch}: residual {loss:.5f}, {rate:.0f} examples/s", flush=True)

    grid = jnp.linspace(-1, 1, 101)
    np.save("u.npy", jax.vmap(u, (None, 0, None))(params, grid, jnp.float32(0.5)))
    print("done", repr(loss))


if __name__ == "__main__":
    main()
