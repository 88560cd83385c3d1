"""Planar quadrotor learns to hold a waypoint in gusty wind, by gradients taken
straight through the simulated flight (no critic, no reward model)."""
import dataclasses
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax


@dataclasses.dataclass(frozen=True)
class Config:
    craft: int = 256            # flights per step
    horizon: int = 50
    dt: float = 0.04
    mass: float = 0.8
    inertia: float = 0.012
    arm: float = 0.17
    gravity: float = 9.81
    drag: float = 0.15
    hidden: tuple = (64, 64)
    lr: float = 3e-3
    skipped: int = 5
    report: int = 50


CFG = Config()


# ---- policy: a list of [W, b] lists -----------------------------------------
def init_policy(key, sizes):
    layers = []
    for n, m in zip(sizes[:-1], sizes[1:]):
        key, sub = jax.random.split(key)
        layers.append([jax.random.normal(sub, (n, m)) * n ** -0.5, jnp.zeros((m,))])
    layers[-1][0] = layers[-1][0] * 0.1
    return layers


def policy(layers, obs):
    h = obs
    for w, b in layers[:-1]:
        h = jnp.tanh(h @ w + b)
    w, b = layers[-1]
    hover = 0.5 * CFG.mass * CFG.gravity
    return hover * (1.0 + jnp.tanh(h @ w + b))


# ---- flight -----------------------------------------------------------------
def fly_one_tick(state, thrust, wind):
    x, z, th, vx, vz, om = (state[..., i] for i in range(6))
    total = thrust[..., 0] + thrust[..., 1]
    ax = -total * jnp.sin(th) / CFG.mass - CFG.drag * (vx - wind[..., 0])
    az = total * jnp.cos(th) / CFG.mass - CFG.gravity - CFG.drag * (vz - wind[..., 1])
    al = CFG.arm * (thrust[..., 1] - thrust[..., 0]) / CFG.inertia - 0.8 * om
    vx, vz, om = vx + CFG.dt * ax, vz + CFG.dt * az, om + CFG.dt * al
    return jnp.stack([x + CFG.dt * vx, z + CFG.dt * vz, th + CFG.dt * om, vx, vz, om], axis=-1)


def cost(state, thrust):
    hover = 0.5 * CFG.mass * CFG.gravity
    return (jnp.sum(state[..., :2] ** 2, -1) + 0.3 * state[..., 2] ** 2
            + 0.05 * jnp.sum(state[..., 3:] ** 2, -1)
            + 0.01 * jnp.sum((thrust - hover) ** 2, -1))


def flight_cost(layers, state, gusts):
    def tick(state, wind):
        obs = jnp.concatenate([state[..., :2], jnp.sin(state[..., 2:3]),
                               jnp.cos(state[..., 2:3]), state[..., 3:]], axis=-1)
        thrust = policy(layers, obs)
        state = fly_one_tick(state, thrust, wind)
        return state, jnp.mean(cost(state, thrust))

    last, costs = lax.scan(tick, state, gusts)
    return jnp.mean(costs) + 0.5 * jnp.mean(cost(last, 0.5 * CFG.mass * CFG.gravity * jnp.ones((1, 2))))


# ---- conditions: drawn by numpy, while the previous step is computed ---------
class Weather:
    """Dryden-like gusts: three first-order filters with different memories."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.keep = np.array([0.98, 0.9, 0.6], np.float32)

    def draw(self):
        n, t = CFG.craft, CFG.horizon
        state = self.rng.uniform(-1, 1, (n, 6)).astype(np.float32)
        state *= np.array([2, 2, 0.6, 1, 1, 1], np.float32)
        shocks = self.rng.standard_normal((t, n, 2, 3), dtype=np.float32)
        gusts = np.empty((t, n, 2), np.float32)
        level = np.zeros((n, 2, 3), np.float32)
        for i in range(t):
            level = self.keep * level + np.sqrt(1 - self.keep ** 2) * shocks[i]
            gusts[i] = level.sum(-1)
        return state, gusts


def main(steps):
    layers = init_policy(jax.random.PRNGKey(3), (7, *CFG.hidden, 2))
    tx = optax.chain(optax.clip_by_global_norm(0.5), optax.inject_hyperparams(optax.adam)(CFG.lr))
    opt = tx.init(layers)
    weather = Weather(11)

    def improve(layers, opt, state, gusts):
        value, grads = jax.value_and_grad(flight_cost)(layers, state, gusts)
        updates, opt = tx.update(grads, opt, layers)
        return optax.apply_updates(layers, updates), opt, value

    improve = jax.jit(improve, donate_argnums=(0, 1))
    rehearse = jax.jit(flight_cost)
    held_out = weather.draw()

    best = float("inf")
    begin = None
    for step in range(-CFG.skipped, steps):
        if step == 0:
            jax.block_until_ready(layers)
            begin = time.perf_counter()
        state, gusts = weather.draw()
        layers, opt, value = improve(layers, opt, state, gusts)
        if step % CFG.report == CFG.report - 1:
            value = float(value)
            best = min(best, value)
            print(f"{step + 1:6d}  cost {value:8.4f}  best {best:8.4f}")
            if value > 3.0 * best:
                opt[1].hyperparams["learning_rate"] = opt[1].hyperparams["learning_rate"] * 0.7
        if step % (10 * CFG.report) == 0:
            print(f"        held-out cost {float(rehearse(layers, *held_out)):.4f}")
    jax.block_until_ready((layers, opt))
    took = time.perf_counter() - begin
    print(f"done {steps} steps in {took:.3f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 6000)
