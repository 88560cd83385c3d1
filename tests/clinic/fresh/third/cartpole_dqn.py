"""Double DQN on a vectorised cart-pole with stacked frames; replay buffer in numpy."""
import os
import sys
import time
from functools import partial
from typing import NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the actor's matrices are small

import jax
import jax.numpy as jnp
import numpy as np
import optax

NUM_ENVS = 32
STACK = 6
OBS = 4 * STACK
ACTIONS = 2
HIDDEN = 256
BATCH = 512
CAPACITY = 200_000
GAMMA = 0.99
ACTOR_EVERY = 100


class CartPoles:
    """NUM_ENVS cart-poles at once; observations are the last STACK frames."""

    def __init__(self, rng):
        self.rng = rng
        self.x = rng.uniform(-0.05, 0.05, (NUM_ENVS, 4))
        self.frames = np.repeat(self.x[:, None], STACK, 1).astype(np.float32)

    def observe(self):
        return self.frames.reshape(NUM_ENVS, OBS)

    def step(self, action):
        pos, vel, ang, rot = self.x.T
        force = np.where(action == 1, 10.0, -10.0)
        sin, cos = np.sin(ang), np.cos(ang)
        tmp = (force + 0.05 * rot ** 2 * sin) / 1.1
        acc = (9.8 * sin - cos * tmp) / (0.5 * (4 / 3 - 0.1 * cos ** 2 / 1.1))
        self.x = self.x + 0.02 * np.stack([vel, tmp - 0.05 * acc * cos / 1.1, rot, acc], 1)
        done = (np.abs(self.x[:, 0]) > 2.4) | (np.abs(self.x[:, 2]) > 0.21)
        self.frames = np.concatenate([self.frames[:, 1:], self.x[:, None]], 1, dtype=np.float32)
        after = self.observe().copy()
        if done.any():
            self.x[done] = self.rng.uniform(-0.05, 0.05, (done.sum(), 4))
            self.frames[done] = self.x[done][:, None]
        return after, np.ones(NUM_ENVS, np.float32), done


class Replay:
    def __init__(self, rng):
        self.rng = rng
        self.obs = np.zeros((CAPACITY, OBS), np.float32)
        self.next_obs = np.zeros((CAPACITY, OBS), np.float32)
        self.action = np.zeros(CAPACITY, np.int32)
        self.reward = np.zeros(CAPACITY, np.float32)
        self.done = np.zeros(CAPACITY, np.float32)
        self.priority = np.ones(CAPACITY, np.float32)
        self.size = self.head = 0

    def add(self, obs, action, reward, next_obs, done):
        at = (self.head + np.arange(NUM_ENVS)) % CAPACITY
        self.obs[at], self.next_obs[at] = obs, next_obs
        self.action[at], self.reward[at], self.done[at] = action, reward, done
        self.head = (self.head + NUM_ENVS) % CAPACITY
        self.size = min(self.size + NUM_ENVS, CAPACITY)

    def sample(self):
        idx = self.rng.integers(self.size, size=BATCH)
        return idx, (self.obs[idx], self.action[idx], self.reward[idx],
                     self.next_obs[idx], self.done[idx])


class Learner(NamedTuple):
    params: dict
    target: dict
    opt_state: tuple


def init_params(key):
    sizes = (OBS, HIDDEN, HIDDEN, ACTIONS)
    keys = jax.random.split(key, 3)
    return {f"w{i}": jax.random.normal(k, (a, b)) * np.sqrt(2 / a)
            for i, (k, a, b) in enumerate(zip(keys, sizes[:-1], sizes[1:]))}


def q_values(params, obs, np=jnp):
    h = np.maximum(obs @ params["w0"], 0.0)
    h = np.maximum(h @ params["w1"], 0.0)
    return h @ params["w2"]


tx = optax.chain(optax.clip_by_global_norm(10.0), optax.adam(5e-4))


@partial(jax.jit, donate_argnums=0)
def learn(learner, batch):
    obs, action, reward, next_obs, done = batch
    best = q_values(learner.params, next_obs).argmax(-1)
    after = jnp.take_along_axis(q_values(learner.target, next_obs), best[:, None], 1)[:, 0]
    goal = reward + GAMMA * (1.0 - done) * after

    def loss_fn(params):
        q = jnp.take_along_axis(q_values(params, obs), action[:, None], 1)[:, 0]
        return optax.huber_loss(q, goal).mean(), jnp.abs(q - goal)

    (loss, td), grads = jax.value_and_grad(loss_fn, has_aux=True)(learner.params)
    updates, opt_state = tx.update(grads, learner.opt_state)
    params = optax.apply_updates(learner.params, updates)
    target = optax.incremental_update(params, learner.target, 0.005)
    return Learner(params, target, opt_state), loss, td


def act(actor, obs, rng, epsilon):
    greedy = q_values(actor, obs, np).argmax(-1)
    explore = rng.random(NUM_ENVS) < epsilon
    return np.where(explore, rng.integers(ACTIONS, size=NUM_ENVS), greedy)


def main(steps):
    rng = np.random.default_rng(0)
    envs, replay = CartPoles(rng), Replay(rng)
    params = init_params(jax.random.key(0))
    learner = Learner(params, jax.tree.map(jnp.copy, params), tx.init(params))
    actor = jax.device_get(params)
    obs = envs.observe().copy()

    def interact(obs, epsilon):
        action = act(actor, obs, rng, epsilon)
        after, reward, done = envs.step(action)
        replay.add(obs, action, reward, after, done)
        return envs.observe().copy()

    for _ in range(300):
        obs = interact(obs, 1.0)
    for step in range(steps + 3):
        if step == 3:
            jax.block_until_ready(learner)
            start = time.perf_counter()
        obs = interact(obs, max(0.05, 1.0 - step / 5000))
        idx, batch = replay.sample()
        learner, loss, td = learn(learner, batch)
        if step % ACTOR_EVERY == 0:
            actor = jax.device_get(learner.params)
        if step % 1000 == 0:
            print(f"step {step} loss {float(loss):.5f}", flush=True)
    jax.block_until_ready(learner)
    print(f"done {steps} steps in {time.perf_counter() - start:.3f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 30_000)
