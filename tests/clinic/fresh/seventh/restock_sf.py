"""Successor features with generalised policy improvement for restocking shops.

Every shop has its own taste vector w over (sales, waste, shortage, shipping); psi(s, a) predicts the
discounted sums of those features.  Act -> simulate -> store -> learn, each a jitted function.
usage: python restock_sf.py [STEPS]
"""
import sys
import time
from collections import namedtuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

SHOPS, GOODS, ORDERS, PHI = 64, 12, 9, 4
CAPACITY, MINIBATCH, GAMMA, TAU = 65536, 512, 0.95, 0.01
OBS = GOODS * 3
WIDTHS = (OBS + PHI, 160, 160, 160, ORDERS * PHI)

Buffer = namedtuple("Buffer", "obs act phi nxt w ptr count")
World = namedtuple("World", "stock due trend key")


def init_mlp(key, sizes):
    keys = jax.random.split(key, len(sizes) - 1)
    return [
        {"w": jax.random.normal(k, (m, n)) * np.sqrt(2 / m), "b": jnp.zeros(n), "g": jnp.ones(n)}
        for k, m, n in zip(keys, sizes[:-1], sizes[1:])
    ]


def psi(params, obs, w):
    h = jnp.concatenate([obs, w], -1)
    for layer in params[:-1]:
        h = h @ layer["w"] + layer["b"]
        h = layer["g"] * jax.nn.standardize(h, axis=-1, epsilon=1e-5)
        h = jax.nn.relu(h)
    last = params[-1]
    out = (h @ last["w"]) * last["g"] + last["b"]
    return out.reshape(*obs.shape[:-1], ORDERS, PHI)


def observe(world):
    return jnp.concatenate([world.stock, world.due, world.trend], -1)


@jax.jit
def act(params, obs, w, key):
    q = jnp.einsum("nap,np->na", psi(params, obs, w), w)
    k1, k2 = jax.random.split(key)
    rnd = jax.random.randint(k1, q.shape[:1], 0, ORDERS)
    return jnp.where(jax.random.uniform(k2, q.shape[:1]) < 0.1, rnd, q.argmax(-1))


@jax.jit
def simulate(world, action):
    key, k1, k2 = jax.random.split(world.key, 3)
    size = (action[:, None] % 3).astype(jnp.float32)
    which = jnp.arange(GOODS)[None] % 3 == action[:, None] // 3
    demand = jnp.exp(world.trend + 0.3 * jax.random.normal(k1, world.trend.shape)) * 0.4
    stock = world.stock * 0.97 + world.due
    sold = jnp.minimum(stock, demand)
    phi = jnp.stack([sold.sum(-1), -0.03 * stock.sum(-1), -(demand - sold).sum(-1), -0.1 * size[:, 0]], -1)
    trend = 0.95 * world.trend + 0.1 * jax.random.normal(k2, world.trend.shape)
    return World(stock - sold, which * size, trend, key), phi


def store(buf, obs, a, phi, nxt, w):
    at = (buf.ptr + jnp.arange(SHOPS)) % CAPACITY
    return Buffer(
        buf.obs.at[at].set(obs), buf.act.at[at].set(a), buf.phi.at[at].set(phi),
        buf.nxt.at[at].set(nxt), buf.w.at[at].set(w),
        (buf.ptr + SHOPS) % CAPACITY, jnp.minimum(buf.count + SHOPS, CAPACITY),
    )


store = jax.jit(store, donate_argnums=0)


@jax.jit
def gradients(params, target, buf, key):
    i = jax.random.randint(key, (MINIBATCH,), 0, jnp.maximum(buf.count, 1))
    o, a, phi, n, w = buf.obs[i], buf.act[i], buf.phi[i], buf.nxt[i], buf.w[i]
    nq = psi(target, n, w)
    best = jnp.einsum("nap,np->na", psi(params, n, w), w).argmax(-1)
    goal = phi + GAMMA * jnp.take_along_axis(nq, best[:, None, None], 1)[:, 0]

    def td(p):
        now = jnp.take_along_axis(psi(p, o, w), a[:, None, None], 1)[:, 0]
        return optax.huber_loss(now, jax.lax.stop_gradient(goal)).mean()

    return jax.value_and_grad(td)(params)


optim = optax.chain(optax.clip_by_global_norm(5.0), optax.adam(3e-4))


def apply_grads(params, opt_state, grads):
    upd, opt_state = optim.update(grads, opt_state)
    return optax.apply_updates(params, upd), opt_state


def polyak(target, params):
    return jax.tree.map(lambda t, p: t + TAU * (p - t), target, params)


apply_grads = jax.jit(apply_grads, donate_argnums=(0, 1))
polyak = jax.jit(polyak, donate_argnums=0)


def main(steps):
    keys = jax.random.split(jax.random.key(5), 4)
    params = init_mlp(keys[0], WIDTHS)
    target = jax.tree.map(jnp.copy, params)
    opt_state = optim.init(params)
    taste = jax.nn.softmax(jax.random.normal(keys[1], (SHOPS, PHI)))
    zeros = jnp.zeros((SHOPS, GOODS))
    world = World(zeros + 1.0, zeros, zeros, keys[2])
    buf = Buffer(
        jnp.zeros((CAPACITY, OBS)), jnp.zeros(CAPACITY, jnp.int32), jnp.zeros((CAPACITY, PHI)),
        jnp.zeros((CAPACITY, OBS)), jnp.zeros((CAPACITY, PHI)), jnp.int32(0), jnp.int32(0),
    )
    rand = np.random.default_rng(0)
    obs, t0 = observe(world), 0.0
    warm = 20
    for it in range(-warm, steps):
        if it == 0:
            jax.block_until_ready((params, buf))
            t0 = time.perf_counter()
        seeds = rand.integers(0, 2**32, (2, 2), dtype=np.uint32)
        k_act, k_learn = jax.random.wrap_key_data(seeds)
        a = act(params, obs, taste, k_act)
        world, phi = simulate(world, a)
        nxt = observe(world)
        buf = store(buf, obs, a, phi, nxt, taste)
        obs = nxt
        loss, grads = gradients(params, target, buf, k_learn)
        params, opt_state = apply_grads(params, opt_state, grads)
        target = polyak(target, params)
        if it % 2000 == 0:
            print(f"{it}: td {float(loss):.4f} sales/shop {float(phi[:, 0].mean()):.3f}", flush=True)
    jax.block_until_ready((params, target, buf))
    print(f"done {steps} steps in {time.perf_counter() - t0:.4f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 90000)
