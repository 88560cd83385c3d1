"""REINFORCE with a baseline on a cart-pole written in JAX.

Each update plays one batch of episodes, on poles and carts that are drawn anew (domain
randomisation), inside lax.scan.
"""

import argparse
import functools
import time
from collections import deque
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy.signal import lfilter

GRAVITY, FORCE, DT = 9.8, 10.0, 0.02
HORIZON = 100
GAMMA = 0.99
Params = dict[str, jax.Array]


class Task(NamedTuple):
    """Where an episode begins, and with what bodies; leading axis: the environments."""

    start: np.ndarray
    cart_mass: np.ndarray
    pole_mass: np.ndarray
    half_length: np.ndarray
    wind: np.ndarray


def within(rng: np.random.Generator, mean: float, std: float) -> float:
    """A normal number within two standard deviations."""
    while True:
        value = rng.normal(mean, std)
        if abs(value - mean) <= 2 * std:
            return value


def gusts(rng: np.random.Generator) -> np.ndarray:
    """A wind that changes gradually, in newtons."""
    return lfilter([0.3], [1, -0.95], rng.normal(0, 1, HORIZON))


def draw_tasks(rng: np.random.Generator, count: int) -> Task:
    tasks = [
        Task(
            start=rng.uniform(-0.05, 0.05, 4),
            cart_mass=within(rng, 1.0, 0.1),
            pole_mass=within(rng, 0.1, 0.02),
            half_length=within(rng, 0.5, 0.05),
            wind=gusts(rng),
        )
        for _ in range(count)
    ]
    return Task(*(np.array(column, dtype=np.float32) for column in zip(*tasks, strict=True)))


def physics(task: Task, state: jax.Array, action: jax.Array, wind: jax.Array) -> jax.Array:
    """The next state of all carts (Barto, Sutton & Anderson 1983)."""
    _, velocity, angle, spin = state.T
    force = jnp.where(action == 1, FORCE, -FORCE) + wind
    mass = task.cart_mass + task.pole_mass
    lever = task.pole_mass * task.half_length
    push = (force + lever * spin**2 * jnp.sin(angle)) / mass
    inertia = task.half_length * (4 / 3 - task.pole_mass * jnp.cos(angle) ** 2 / mass)
    turn = (GRAVITY * jnp.sin(angle) - jnp.cos(angle) * push) / inertia
    pull = push - lever * turn * jnp.cos(angle) / mass
    rates = jnp.stack([velocity, pull, spin, turn], axis=1)
    return state + DT * rates


def network(params: Params, observation: jax.Array) -> tuple[jax.Array, jax.Array]:
    hidden = jnp.tanh(observation @ params["w1"] + params["b1"])
    hidden = jnp.tanh(hidden @ params["w2"] + params["b2"])
    return hidden @ params["policy"], (hidden @ params["value"])[..., 0]


@jax.jit
def rollout(params: Params, task: Task, key: jax.Array) -> tuple[jax.Array, ...]:
    """Plays until the horizon; what comes after a fall earns nothing."""

    def play(carry: tuple[jax.Array, jax.Array], moment: tuple[jax.Array, jax.Array]) -> tuple:
        (state, alive), (key, wind) = carry, moment
        logits, _ = network(params, state)
        action = jax.random.categorical(key, logits)
        after = physics(task, state, action, wind)
        upright = (jnp.abs(after[:, 0]) < 2.4) & (jnp.abs(after[:, 2]) < 0.21)
        return (after, alive & upright), (state, action, alive.astype(jnp.float32))

    carry = task.start, jnp.ones(len(task.start), bool)
    moments = jax.random.split(key, HORIZON), task.wind.T
    _, trajectory = jax.lax.scan(play, carry, moments)
    return trajectory


def discounted(rewards: jax.Array) -> jax.Array:
    def add(later: jax.Array, reward: jax.Array) -> tuple[jax.Array, jax.Array]:
        total = reward + GAMMA * later
        return total, total

    return jax.lax.scan(add, jnp.zeros_like(rewards[0]), rewards, reverse=True)[1]


optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(1e-3))


@functools.partial(jax.jit, donate_argnums=(0, 1))
def learn(
    params: Params, opt_state: optax.OptState, trajectory: tuple[jax.Array, ...]
) -> tuple[Params, optax.OptState, jax.Array]:
    observations, actions, alive = trajectory
    returns = discounted(alive)

    def loss_fn(params: Params) -> jax.Array:
        logits, values = network(params, observations)
        log_probs = jax.nn.log_softmax(logits)
        chosen = jnp.take_along_axis(log_probs, actions[..., None], axis=-1)[..., 0]
        advantages = returns - jax.lax.stop_gradient(values)
        entropy = -(jnp.exp(log_probs) * log_probs).sum(-1)
        policy = -(chosen * advantages + 0.01 * entropy)
        return ((policy + 0.5 * (values - returns) ** 2 / HORIZON) * alive).sum() / alive.sum()

    grads = jax.grad(loss_fn)(params)
    updates, opt_state = optimizer.update(grads, opt_state)
    return optax.apply_updates(params, updates), opt_state, alive.sum(axis=0).mean()


def init(key: jax.Array, width: int) -> Params:
    shapes = {"w1": (4, width), "w2": (width, width), "policy": (width, 2), "value": (width, 1)}
    keys = jax.random.split(key, len(shapes))
    params = {
        name: jax.random.normal(each, shape) / np.float32(np.sqrt(shape[0]))
        for each, (name, shape) in zip(keys, shapes.items(), strict=True)
    }
    return {**params, "b1": jnp.zeros(width), "b2": jnp.zeros(width)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=1000)
    parser.add_argument("--envs", type=int, default=64)
    parser.add_argument("--updates", type=int, default=100, help="in an epoch")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    rng = np.random.default_rng(args.seed)
    key, sub = jax.random.split(jax.random.key(args.seed))
    params = init(sub, 32)
    opt_state = optimizer.init(params)
    recent: deque[float] = deque(maxlen=100)
    for epoch in range(args.epochs):
        start = time.monotonic()
        for update in range(args.updates):
            task = draw_tasks(rng, args.envs)
            key, sub = jax.random.split(key)
            trajectory = rollout(params, task, sub)
            params, opt_state, length = learn(params, opt_state, trajectory)
            if update % 30 == 29:
                recent.append(float(length))
        played = args.updates * args.envs * HORIZON
        mean = np.mean(recent)
        speed = played / (time.monotonic() - start)
        print(f"{epoch} length {mean:.1f} of {HORIZON}, {speed:.0f} examples/s", flush=True)
    print(f"last length {float(length)!r}")
    np.savez("policy.npz", **params)


if __name__ == "__main__":
    main()
