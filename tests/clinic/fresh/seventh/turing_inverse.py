#!/usr/bin/env python
"""Recover spatially varying feed/kill rates of a Gray-Scott reaction from snapshot pairs.

usage: turing_inverse.py [STEPS] [--grid 96] [--snaps 6] [--inner 8] [--lr 0.02]
"""
import argparse
import time

import numpy as np
import jax
import jax.numpy as jnp
from jax import lax

DU, DV = 0.16, 0.08


def parse():
    ap = argparse.ArgumentParser()
    ap.add_argument("steps", nargs="?", type=int, default=30000)
    ap.add_argument("--grid", type=int, default=96)
    ap.add_argument("--snaps", type=int, default=6)
    ap.add_argument("--inner", type=int, default=8, help="solver steps between two snapshots")
    ap.add_argument("--lr", type=float, default=0.02)
    ap.add_argument("--smooth", type=float, default=1e-3)
    return ap.parse_args()


def laplacian(z):
    return (jnp.roll(z, 1, -1) + jnp.roll(z, -1, -1) + jnp.roll(z, 1, -2)
            + jnp.roll(z, -1, -2) - 4.0 * z)


def rates(theta):
    """Unconstrained maps -> feed in (0, .1), kill in (.03, .08)."""
    feed = 0.1 * jax.nn.sigmoid(theta["feed"])
    kill = 0.03 + 0.05 * jax.nn.sigmoid(theta["kill"])
    return feed, kill


def react(u, v, feed, kill, hill):
    # saturating autocatalysis: u v^2 / (1 + (v/K)^n), exponent learned
    sat = 1.0 + jnp.exp(hill[0] * jnp.log(jnp.abs(v) / jnp.exp(hill[1]) + 1e-4))
    r = u * v * v / sat
    damp = jnp.tanh(r)
    du = DU * laplacian(u) - damp + feed * (1.0 - u)
    dv = DV * laplacian(v) + damp - (feed + kill) * v
    return u + du, v + dv


def simulate(theta, u, v, n):
    feed, kill = rates(theta)

    def body(c, _):
        return react(*c, feed, kill, theta["hill"]), None

    (u, v), _ = lax.scan(body, (u, v), None, length=n)
    return u, v


def snapshots(grid, n, inner, seed=0):
    """March the true system (NumPy) and keep pairs `inner` steps apart."""
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[:grid, :grid] / grid
    feed = 0.035 + 0.015 * np.sin(2 * np.pi * xx)
    kill = 0.06 + 0.004 * np.cos(2 * np.pi * yy)
    u, v = np.ones((grid, grid)), np.zeros((grid, grid))
    m = rng.random((grid, grid)) < 0.15
    u[m], v[m] = 0.5, 0.35
    pairs = []
    for k in range(n):
        for j in range(60 + inner):
            if j == 60:
                first = (u, v)
            lu, lv = (sum(np.roll(z, s, a) for s in (1, -1) for a in (0, 1)) - 4 * z for z in (u, v))
            r = u * v * v
            u, v = u + DU * lu - r + feed * (1 - u), v + DV * lv + r - (feed + kill) * v
        pairs.append(first + (u, v))
    out = [np.stack(c) for c in zip(*pairs)]
    return [o.astype(np.float32) for o in out], feed


def main():
    a = parse()
    data, true_feed = snapshots(a.grid, a.snaps, a.inner)
    data = [jnp.asarray(d) for d in data]
    shape = (a.grid, a.grid)
    theta = {"feed": jnp.zeros(shape), "kill": jnp.zeros(shape), "hill": jnp.array([2.0, 1.5])}
    mom = jax.tree.map(jnp.zeros_like, theta)
    sq = jax.tree.map(jnp.zeros_like, theta)

    def objective(theta, u0, v0, u1, v1):
        u, v = simulate(theta, u0, v0, a.inner)
        fit = jnp.mean((u - u1) ** 2) + jnp.mean((v - v1) ** 2)
        rough = sum(jnp.mean(laplacian(theta[k]) ** 2) for k in ("feed", "kill"))
        return 1e3 * fit + a.smooth * rough

    def descend(carry, data, count):
        theta, mom, sq = carry
        val, g = jax.value_and_grad(objective)(theta, *data)
        mom = jax.tree.map(lambda m, x: 0.9 * m + 0.1 * x, mom, g)
        sq = jax.tree.map(lambda s, x: 0.99 * s + 0.01 * x * x, sq, g)
        scale = a.lr * jnp.minimum(1.0, count / 100.0)
        theta = jax.tree.map(lambda t, m, s: t - scale * m / (jnp.sqrt(s) + 1e-8), theta, mom, sq)
        return (theta, mom, sq), val

    descend = jax.jit(descend, donate_argnums=0)

    @jax.jit
    def feed_error(theta, ref):
        return jnp.sqrt(jnp.mean((rates(theta)[0] - ref) ** 2))

    ref = jnp.asarray(true_feed, jnp.float32)
    carry = (theta, mom, sq)
    for i in range(3):
        carry, val = descend(carry, data, i + 1.0)
    jax.block_until_ready((carry, feed_error(carry[0], ref)))

    start = time.perf_counter()
    for i in range(a.steps):
        carry, val = descend(carry, data, i + 4.0)
        if i % 1000 == 999:
            print(f"iter {i + 1}: misfit {float(val):.4g}, feed rmse {float(feed_error(carry[0], ref)):.5f}")
    jax.block_until_ready(carry)
    print(f"done {a.steps} steps in {time.perf_counter() - start:.4f} s")


if __name__ == "__main__":
    main()
