"""Learn a quadrotor hover policy by back-propagating through the simulator.

Planar-free 3-D rigid body with quaternion attitude, mass and gust randomisation.
usage: python quad_bptt.py [STEPS]
"""
import sys
import time
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

N_ENVS = 512
HORIZON = 32
HIDDEN = 64
DT = 0.02
GRAVITY = 9.81
LR = 3e-4
WARMUP = 5
REPORT = 500


class Body(NamedTuple):
    pos: jax.Array
    vel: jax.Array
    quat: jax.Array
    omega: jax.Array


class Learner(NamedTuple):
    theta: list
    mom: list
    var: list
    count: jax.Array
    key: jax.Array


def quat_mul(p, q):
    w1, x1, y1, z1 = jnp.split(p, 4, axis=-1)
    w2, x2, y2, z2 = jnp.split(q, 4, axis=-1)
    return jnp.concatenate([
        w1 * w2 - x1 * x2 - y1 * y2 - z1 * z2,
        w1 * x2 + x1 * w2 + y1 * z2 - z1 * y2,
        w1 * y2 - x1 * z2 + y1 * w2 + z1 * x2,
        w1 * z2 + x1 * y2 - y1 * x2 + z1 * w2], axis=-1)


def thrust_axis(q):
    w, x, y, z = jnp.split(q, 4, axis=-1)
    return jnp.concatenate([2 * (x * z + w * y), 2 * (y * z - w * x),
                            1 - 2 * (x * x + y * y)], axis=-1)


def policy(theta, body):
    h = jnp.concatenate([body.pos, body.vel, body.quat, body.omega], axis=-1)
    for w, b in theta[:-1]:
        h = jnp.tanh(h @ w + b)
    w, b = theta[-1]
    return jnp.tanh(h @ w + b)


def integrate(body, action, mass, wind):
    thrust = mass * GRAVITY * (1.0 + action[:, :1])
    torque = action[:, 1:] * 0.08
    acc = thrust * thrust_axis(body.quat) / mass - 0.15 * (body.vel - wind)
    acc = acc - jnp.array([0.0, 0.0, GRAVITY])
    inertia = jnp.array([0.010, 0.010, 0.018])
    domega = (torque - jnp.cross(body.omega, inertia * body.omega)) / inertia
    vel = body.vel + DT * acc
    omega = body.omega + DT * domega
    dq = quat_mul(body.quat, jnp.pad(omega, ((0, 0), (1, 0)))) * 0.5
    quat = body.quat + DT * dq
    quat = quat / jnp.linalg.norm(quat, axis=-1, keepdims=True)
    return Body(body.pos + DT * vel, vel, quat, omega)


def reset(key, n):
    kp, kv, kq, kw = jax.random.split(key, 4)
    quat = jnp.concatenate([jnp.ones((n, 1)), 0.1 * jax.random.normal(kq, (n, 3))], -1)
    return Body(jax.random.normal(kp, (n, 3)),
                0.3 * jax.random.normal(kv, (n, 3)),
                quat / jnp.linalg.norm(quat, axis=-1, keepdims=True),
                0.1 * jax.random.normal(kw, (n, 3)))


def rollout_cost(theta, key, gust, horizon):
    k0, k1, k2 = jax.random.split(key, 3)
    mass = jax.random.uniform(k1, (N_ENVS, 1), minval=0.8, maxval=1.2)
    wind = gust * jax.random.normal(k2, (N_ENVS, 3))

    def tick(body, _):
        act = policy(theta, body)
        body = integrate(body, act, mass, wind)
        cost = (jnp.sum(body.pos ** 2, -1) + 0.1 * jnp.sum(body.vel ** 2, -1)
                + 0.05 * jnp.sum(body.omega ** 2, -1) + 0.01 * jnp.sum(act ** 2, -1))
        return body, jnp.mean(cost)

    _, costs = jax.lax.scan(tick, reset(k0, N_ENVS), None, length=horizon)
    return jnp.mean(costs)


@partial(jax.jit, static_argnames=("horizon",), donate_argnums=(0,))
def improve(learner, gust, horizon):
    key, sub = jax.random.split(learner.key)
    cost, g = jax.value_and_grad(rollout_cost)(learner.theta, sub, gust, horizon)
    norm = jnp.sqrt(sum(jnp.sum(x ** 2) for x in jax.tree.leaves(g)))
    g = jax.tree.map(lambda x: x * jnp.minimum(1.0, 1.0 / (norm + 1e-8)), g)
    t = learner.count + 1
    mom = jax.tree.map(lambda m, x: 0.9 * m + 0.1 * x, learner.mom, g)
    var = jax.tree.map(lambda v, x: 0.999 * v + 0.001 * x * x, learner.var, g)
    lr = LR * jnp.sqrt(1 - 0.999 ** t) / (1 - 0.9 ** t)
    theta = jax.tree.map(lambda p, m, v: p - lr * m / (jnp.sqrt(v) + 1e-8),
                         learner.theta, mom, var)
    return Learner(theta, mom, var, t, key), cost


def fresh_learner(seed=0):
    rng = np.random.default_rng(seed)
    sizes = [13, HIDDEN, HIDDEN, 4]
    theta = [(jnp.asarray(rng.normal(0, a ** -0.5, (a, b)), dtype=float), jnp.zeros(b))
             for a, b in zip(sizes, sizes[1:])]
    zeros = lambda: jax.tree.map(jnp.zeros_like, theta)
    return Learner(theta, zeros(), zeros(), jnp.zeros(()), jax.random.key(seed))


def gust_schedule(i, total):
    return 0.2 + 1.3 * i / max(total, 1)


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 20000
    learner = fresh_learner()
    for i in range(WARMUP):
        learner, cost = improve(learner, gust_schedule(i, steps), HORIZON)
    jax.block_until_ready(cost)

    start = time.perf_counter()
    for i in range(steps):
        learner, cost = improve(learner, gust_schedule(i, steps), HORIZON)
        if (i + 1) % REPORT == 0:
            print(f"[{i + 1}] mean cost {float(cost):.4f}")
    jax.block_until_ready(learner)
    print(f"done {steps} steps in {time.perf_counter() - start:.4f} s")


if __name__ == "__main__":
    main()
