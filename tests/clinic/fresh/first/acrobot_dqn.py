"""Double DQN on a vectorised acrobot, with the replay buffer on the device.

    python healthy.py [STEPS]

One step: 32 environments advance 32 time steps, the transitions go into the
buffer, and one batch is learnt.
"""
import sys
import time
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

ENVS = 32
HORIZON = 32
CAPACITY = 2**19
BATCH = 512
HIDDEN = 192
ACTIONS = 3
DT = 0.2
EPISODE = 400
GAMMA = 0.99
TAU = 0.01
GRAVITY = 9.8


class Replay(NamedTuple):
    obs: jax.Array
    action: jax.Array
    reward: jax.Array
    done: jax.Array
    next_obs: jax.Array


class Envs(NamedTuple):
    phys: jax.Array  # [ENVS, 4]: two angles, two velocities
    clock: jax.Array


class Agent(NamedTuple):
    params: dict
    target: dict
    opt: optax.OptState
    replay: Replay
    envs: Envs
    key: jax.Array
    count: jax.Array


# ---------------------------------------------------------------- acrobot


def derivative(phys, torque):
    a1, a2, v1, v2 = phys[:, 0], phys[:, 1], phys[:, 2], phys[:, 3]
    d1 = 0.25 + (1.25 + jnp.cos(a2)) + 2.0
    d2 = 0.25 + 0.5 * jnp.cos(a2) + 1.0
    phi2 = 0.5 * GRAVITY * jnp.sin(a1 + a2)
    phi1 = -0.5 * v2**2 * jnp.sin(a2) - v2 * v1 * jnp.sin(a2) + 1.5 * GRAVITY * jnp.sin(a1) + phi2
    acc2 = (torque + d2 / d1 * phi1 - 0.5 * v1**2 * jnp.sin(a2) - phi2) / (1.25 - d2**2 / d1)
    acc1 = -(d2 * acc2 + phi1) / d1
    return jnp.stack([v1, v2, acc1, acc2], axis=-1)


def advance(phys, torque):
    k1 = derivative(phys, torque)
    k2 = derivative(phys + 0.5 * DT * k1, torque)
    k3 = derivative(phys + 0.5 * DT * k2, torque)
    k4 = derivative(phys + DT * k3, torque)
    phys = phys + DT / 6.0 * (k1 + 2 * k2 + 2 * k3 + k4)
    angles = (phys[:, :2] + jnp.pi) % (2 * jnp.pi) - jnp.pi
    limit = jnp.array([4 * jnp.pi, 9 * jnp.pi])
    return jnp.concatenate([angles, jnp.clip(phys[:, 2:], -limit, limit)], axis=-1)


def observe(phys):
    angles = phys[:, :2]
    return jnp.concatenate([jnp.cos(angles), jnp.sin(angles), phys[:, 2:] / 10.0], axis=-1)


def env_step(envs, action, key):
    phys = advance(envs.phys, action.astype(jnp.float32) - 1.0)
    height = -jnp.cos(phys[:, 0]) - jnp.cos(phys[:, 0] + phys[:, 1])
    done = height > 1.0
    reward = jnp.where(done, 1.0, -0.05 + 0.02 * height)
    clock = envs.clock + 1
    restart = done | (clock >= EPISODE)
    fresh = jax.random.uniform(key, phys.shape, minval=-0.1, maxval=0.1)
    envs = Envs(jnp.where(restart[:, None], fresh, phys), jnp.where(restart, 0, clock))
    return envs, observe(phys), reward, done


# ------------------------------------------------------------------ agent


def init_net(key):
    sizes = [6, HIDDEN, HIDDEN, ACTIONS]
    keys = jax.random.split(key, 3)
    return [
        {"w": jax.random.normal(k, (m, n)) * (2.0 / m) ** 0.5, "b": jnp.zeros((n,))}
        for k, m, n in zip(keys, sizes[:-1], sizes[1:])
    ]


def q_values(params, obs):
    x = obs
    for layer in params[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


optimizer = optax.chain(optax.clip_by_global_norm(10.0), optax.adam(5e-4))


def init_agent(key):
    k_net, k_env, key = jax.random.split(key, 3)
    params = init_net(k_net)
    replay = Replay(
        obs=jnp.zeros((CAPACITY, 6)),
        action=jnp.zeros((CAPACITY,), jnp.int32),
        reward=jnp.zeros((CAPACITY,)),
        done=jnp.zeros((CAPACITY,)),
        next_obs=jnp.zeros((CAPACITY, 6)),
    )
    envs = Envs(jax.random.uniform(k_env, (ENVS, 4), minval=-0.1, maxval=0.1), jnp.zeros((ENVS,), jnp.int32))
    target = jax.tree.map(jnp.copy, params)
    return Agent(params, target, optimizer.init(params), replay, envs, key, jnp.zeros((), jnp.int32))


def act(params, envs, key, eps):
    k_explore, k_action, k_env = jax.random.split(key, 3)
    obs = observe(envs.phys)
    greedy = q_values(params, obs).argmax(-1)
    explore = jax.random.uniform(k_explore, (ENVS,)) < eps
    action = jnp.where(explore, jax.random.randint(k_action, (ENVS,), 0, ACTIONS), greedy)
    envs, next_obs, reward, done = env_step(envs, action, k_env)
    return envs, Replay(obs, action, reward, done.astype(jnp.float32), next_obs)


def collect(params, envs, key, eps):
    def body(envs, key):
        return act(params, envs, key, eps)

    return jax.lax.scan(body, envs, jax.random.split(key, HORIZON))


def store(replay, rollout, count):
    at = (count * ENVS * HORIZON) % CAPACITY

    def write(buffer, new):
        flat = new.reshape(ENVS * HORIZON, *buffer.shape[1:])
        return jax.lax.dynamic_update_slice_in_dim(buffer, flat, at, axis=0)

    return jax.tree.map(write, replay, rollout)


def td_loss(params, target, batch):
    best = q_values(params, batch.next_obs).argmax(-1)
    ahead = jnp.take_along_axis(q_values(target, batch.next_obs), best[:, None], axis=-1)[:, 0]
    goal = jax.lax.stop_gradient(batch.reward + GAMMA * (1.0 - batch.done) * ahead)
    q = jnp.take_along_axis(q_values(params, batch.obs), batch.action[:, None], axis=-1)[:, 0]
    return optax.huber_loss(q, goal).mean()


@partial(jax.jit, donate_argnums=0)
def train_step(agent, eps):
    key, k_roll, k_batch = jax.random.split(agent.key, 3)
    envs, rollout = collect(agent.params, agent.envs, k_roll, eps)
    replay = store(agent.replay, rollout, agent.count)
    count = agent.count + 1
    filled = jnp.minimum(count * ENVS * HORIZON, CAPACITY)
    rows = jax.random.randint(k_batch, (BATCH,), 0, filled)
    batch = jax.tree.map(lambda buffer: buffer[rows], replay)
    loss, grads = jax.value_and_grad(td_loss)(agent.params, agent.target, batch)
    updates, opt = optimizer.update(grads, agent.opt, agent.params)
    params = optax.apply_updates(agent.params, updates)
    target = optax.incremental_update(params, agent.target, TAU)
    agent = Agent(params, target, opt, replay, envs, key, count)
    return agent, {"loss": loss, "reward": rollout.reward.mean()}


def main(steps):
    agent = init_agent(jax.random.PRNGKey(0))
    for step in range(1, steps + 11):
        eps = 0.05 + 0.95 * 0.998 ** (step // 10)
        agent, metrics = train_step(agent, eps)
        if step % 100 == 0:
            print(f"{step:6d} td {float(metrics['loss']):.4f} reward {float(metrics['reward']):.3f}", flush=True)
        if step == 10:
            jax.block_until_ready(agent)
            start = time.perf_counter()
    jax.block_until_ready(agent)
    print(f"done {steps} steps in {time.perf_counter() - start:.2f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 30000)
