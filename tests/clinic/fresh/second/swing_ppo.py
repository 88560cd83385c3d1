"""Swing a pendulum up with PPO: an actor thread with vectorised numpy environments and a learner.

Actors step their environments in lockstep and ask the policy once for all of them; rollouts go to the
learner through a small queue. One "step" is one PPO update on the next rollouts.

    python swing_ppo.py [STEPS]
"""
import queue
import sys
import threading
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

ACTORS = 1
ENVS = 64                 # environments per actor
COLUMNS = 64              # environments per update, from all actors
HORIZON = 32
HIDDEN = 128
EPOCHS = 2
MINIBATCH = 512
GAMMA, LAMBDA, CLIP, ENTROPY = 0.97, 0.95, 0.2, 0.003
EPISODE = 160


class Pendulum:
    """Many torque-limited pendulums at once."""

    def __init__(self, count, seed):
        self.rng = np.random.default_rng(seed)
        self.angle = self.rng.uniform(-np.pi, np.pi, count)
        self.speed = self.rng.uniform(-1, 1, count)
        self.age = self.rng.integers(0, EPISODE, count)

    def observe(self):
        return np.stack([np.cos(self.angle), np.sin(self.angle), self.speed / 8], -1).astype(np.float32)

    def step(self, action):
        torque = 2.0 * np.tanh(action)
        wrapped = (self.angle + np.pi) % (2 * np.pi) - np.pi
        cost = wrapped ** 2 + 0.1 * self.speed ** 2 + 0.001 * torque ** 2
        self.speed = np.clip(self.speed + (15 * np.sin(self.angle) + 3 * torque) * 0.05, -8, 8)
        self.angle = self.angle + self.speed * 0.05
        self.age += 1
        over = self.age >= EPISODE
        n = int(over.sum())
        if n:
            self.angle[over] = self.rng.uniform(-np.pi, np.pi, n)
            self.speed[over] = self.rng.uniform(-1, 1, n)
            self.age[over] = 0
        return (-cost / 8).astype(np.float32), over


class Rollout(NamedTuple):
    obs: np.ndarray           # [T + 1, E, 3]
    action: np.ndarray        # [T, E]
    logp: np.ndarray
    reward: np.ndarray
    over: np.ndarray


def init_net(key):
    def layers(key, sizes, last):
        keys = jax.random.split(key, len(sizes) - 1)
        scale = [1.0] * (len(sizes) - 2) + [last]
        return [(s * jax.random.normal(k, (a, b)) / np.sqrt(a).astype(np.float32), jnp.zeros(b))
                for k, a, b, s in zip(keys, sizes[:-1], sizes[1:], scale)]
    k1, k2 = jax.random.split(key)
    return {"pi": layers(k1, (3, HIDDEN, HIDDEN, 1), 0.1), "v": layers(k2, (3, HIDDEN, HIDDEN, 1), 1.0),
            "log_std": jnp.full((), -0.3)}


def mlp(layers, x):
    for w, b in layers[:-1]:
        x = jnp.tanh(x @ w + b)
    w, b = layers[-1]
    return (x @ w + b)[..., 0]


def log_prob(params, obs, action):
    z = (action - mlp(params["pi"], obs)) * jnp.exp(-params["log_std"])
    return -0.5 * z ** 2 - params["log_std"] - 0.919


@jax.jit
def act(params, obs, noise):
    mean = mlp(params["pi"], obs)
    return mean + jnp.exp(params["log_std"]) * noise, -0.5 * noise ** 2 - params["log_std"] - 0.919


def advantages(params, r):
    v = mlp(params["v"], r.obs)
    live = 1.0 - r.over
    delta = r.reward + GAMMA * v[1:] * live - v[:-1]

    def back(carry, inp):
        d, alive = inp
        carry = d + GAMMA * LAMBDA * alive * carry
        return carry, carry
    _, adv = jax.lax.scan(back, jnp.zeros(v.shape[1]), (delta, live), reverse=True)
    return adv, adv + v[:-1]


optimiser = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(7e-4))


@jax.jit
def update(params, opt, r, key):
    adv, target = advantages(params, r)
    flat = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), (r.obs[:-1], r.action, r.logp, adv, target))
    total = flat[1].shape[0]

    def loss_fn(params, obs, action, logp, adv, target):
        adv = (adv - adv.mean()) / (adv.std() + 1e-6)
        ratio = jnp.exp(log_prob(params, obs, action) - logp)
        gain = jnp.minimum(ratio * adv, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * adv).mean()
        fit = jnp.mean((mlp(params["v"], obs) - target) ** 2)
        return -gain + 0.5 * fit - ENTROPY * params["log_std"]

    def minibatch(carry, rows):
        params, opt = carry
        loss, grads = jax.value_and_grad(loss_fn)(params, *jax.tree.map(lambda a: a[rows], flat))
        updates, opt = optimiser.update(grads, opt)
        return (optax.apply_updates(params, updates), opt), loss

    orders = jax.vmap(lambda k: jax.random.permutation(k, total))(jax.random.split(key, EPOCHS))
    (params, opt), losses = jax.lax.scan(minibatch, (params, opt), orders.reshape(-1, MINIBATCH))
    return params, opt, losses.mean()


class Policy:
    """The newest parameters, shared by all threads."""

    def __init__(self, params):
        self.params = params

    def publish(self, params):
        self.params = params

    def __call__(self, obs, noise):
        action, logp = act(self.params, obs, noise)
        return np.asarray(action), np.asarray(logp)


class Actor(threading.Thread):
    def __init__(self, number, policy, outbox, stop):
        super().__init__(daemon=True)
        self.env, self.rng = Pendulum(ENVS, number), np.random.default_rng(1000 + number)
        self.policy, self.outbox, self.stop = policy, outbox, stop

    def rollout(self):
        obs, rest = [self.env.observe()], []
        for _ in range(HORIZON):
            action, logp = self.policy(obs[-1], self.rng.standard_normal(ENVS).astype(np.float32))
            reward, over = self.env.step(action)
            rest.append((action, logp, reward, over))
            obs.append(self.env.observe())
        return Rollout(np.stack(obs), *(np.stack(a).astype(np.float32) for a in zip(*rest)))

    def run(self):
        while not self.stop.is_set():
            rollout = self.rollout()
            while not self.stop.is_set():
                try:
                    self.outbox.put(rollout, timeout=0.2)
                    break
                except queue.Full:
                    pass


def gather(inbox):
    """Rollouts until COLUMNS environments are together."""
    parts = [inbox.get() for _ in range(COLUMNS // ENVS)]
    return Rollout(*(np.concatenate(a, axis=1) for a in zip(*parts)))


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    params = init_net(jax.random.PRNGKey(0))
    opt = optimiser.init(params)
    keys = jax.random.split(jax.random.PRNGKey(1), steps)
    policy, stop, inbox = Policy(params), threading.Event(), queue.Queue(maxsize=2 * COLUMNS // ENVS)
    actors = [Actor(n, policy, inbox, stop) for n in range(ACTORS)]
    for a in actors:
        a.start()
    began = 0.0
    for i, key in enumerate(np.asarray(keys)):
        if i == 5:
            jax.block_until_ready(params)
            began = time.perf_counter()
        r = gather(inbox)
        params, opt, loss = update(params, opt, r, key)
        policy.publish(params)
        if (i + 1) % 200 == 0:
            print(f"update {i + 1}: reward {r.reward.mean():.3f}, loss {float(loss):.3f}", flush=True)
    jax.block_until_ready(params)
    seconds = time.perf_counter() - began
    stop.set()
    for a in actors:
        a.join()
    print(f"done {steps - 5} steps in {seconds:.3f} s")


if __name__ == "__main__":
    main()
