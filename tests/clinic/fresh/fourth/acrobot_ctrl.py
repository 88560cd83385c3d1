# Swing-up of a double pendulum by differentiating through the simulator.
# A small tanh policy, semi-implicit Euler rolled out with lax.scan, RMSprop.
# SUB updates are done inside one jitted call, so Python is hardly in the loop.
#
#   python acrobot_ctrl.py [UPDATES]
import sys
import time

import jax
import jax.numpy as jnp
from jax import lax, random

HORIZON, DT = 24, 0.02
WORLDS = 256          # start states per update
SUB = 10              # updates per jitted call
M1, M2, L1, L2, G = 1.0, 0.8, 1.0, 0.7, 9.81


def policy(th, s):
    q1, q2, w1, w2 = s
    f = jnp.stack([jnp.sin(q1), jnp.cos(q1), jnp.sin(q2), jnp.cos(q2), 0.2 * w1, 0.2 * w2], -1)
    h = jnp.tanh(f @ th["a"] + th["a0"])
    h = jnp.tanh(h @ th["b"] + th["b0"])
    return 6.0 * jnp.tanh(h @ th["c"])[:, 0]


def accel(s, u):
    q1, q2, w1, w2 = s
    d = q1 - q2
    c, sn = jnp.cos(d), jnp.sin(d)
    den = L1 * (2 * M1 + M2 - M2 * jnp.cos(2 * d))
    a1 = (-G * (2 * M1 + M2) * jnp.sin(q1) - M2 * G * jnp.sin(q1 - 2 * q2)
          - 2 * sn * M2 * (w2**2 * L2 + w1**2 * L1 * c)) / den
    a2 = 2 * sn * (w1**2 * L1 * (M1 + M2) + G * (M1 + M2) * jnp.cos(q1) + w2**2 * L2 * M2 * c)
    return a1, a2 * L1 / (L2 * den) + u


def rollout_cost(th, s0):
    def tick(s, _):
        u = policy(th, s)
        a1, a2 = accel(s, u)
        w1, w2 = s[2] + DT * a1, s[3] + DT * a2
        q1, q2 = s[0] + DT * w1, s[1] + DT * w2
        height = -L1 * jnp.cos(q1) - L2 * jnp.cos(q2)
        cost = jnp.mean((L1 + L2 - height) + 1e-3 * u**2 + 1e-2 * (w1**2 + w2**2))
        return (q1, q2, w1, w2), cost

    _, costs = lax.scan(tick, s0, None, length=HORIZON)
    return costs.mean()


def start_states(key, n=WORLDS):
    a = random.normal(key, (4, n))
    return 0.6 * a[0], 0.6 * a[1], 0.3 * a[2], 0.3 * a[3]


def rmsprop(th, r, g, lr=2e-3):
    norm = jnp.sqrt(sum(jnp.vdot(x, x) for x in jax.tree.leaves(g)))
    g = jax.tree.map(lambda x: x / jnp.maximum(1.0, norm), g)
    r = jax.tree.map(lambda a, b: 0.95 * a + 0.05 * b * b, r, g)
    th = jax.tree.map(lambda p, a, b: p - lr * b / (jnp.sqrt(a) + 1e-6), th, r, g)
    return th, r


def one_update(carry, _):
    th, r, key = carry
    key, sub = random.split(key)
    cost, g = jax.value_and_grad(rollout_cost)(th, start_states(sub))
    th, r = rmsprop(th, r, g)
    return (th, r, key), cost


def updates(carry):
    return lax.scan(one_update, carry, None, length=SUB)


updates = jax.jit(updates, donate_argnums=0)


def init(key, width=32):
    ka, kb, kc, key = random.split(key, 4)
    th = {"a": random.normal(ka, (6, width)) / 2.5, "a0": jnp.zeros(width),
          "b": random.normal(kb, (width, width)) / width**0.5, "b0": jnp.zeros(width),
          "c": random.normal(kc, (width, 1)) / width**0.5}
    return th, jax.tree.map(jnp.ones_like, th), key


def main(total):
    carry = init(random.key(4))
    for _ in range(3):
        carry, costs = updates(carry)
    jax.block_until_ready(carry)

    calls = -(-total // SUB)
    best = float("inf")
    t0 = time.perf_counter()
    for c in range(calls):
        carry, costs = updates(carry)
        if c % 200 == 199:
            best = min(best, float(costs[-1]))
        if c % 2000 == 1999:
            print(f"update {(c + 1) * SUB}: best cost so far {best:.3f}")
    jax.block_until_ready((carry, costs))
    print(f"done {calls * SUB} steps in {time.perf_counter() - t0:.4f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 150_000)
