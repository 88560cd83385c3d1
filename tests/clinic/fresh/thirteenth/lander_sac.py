"""Soft actor-critic on 64 planar landers: python lander_sac.py [STEPS]

The landers live in NumPy and move side by side; each step acts once in all of them
and makes one update of critics, actor and temperature from a prioritised replay.
"""
import sys
import time
from collections import deque
from dataclasses import dataclass
from functools import partial

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax

OBS, ACT, HIDDEN = 8, 2, 256
ROW = 2 * OBS + ACT + 2
LANDERS, PREFILL, BATCH, CAPACITY = 64, 40, 256, 1_000_000
SPAN, DT, SUBSTEPS, MAX_AGE = 1.5, 0.02, 4, 300


@dataclass(frozen=True)
class Config:
    gamma: float = 0.99
    tau: float = 0.005


class Landers:
    """n landers above a flat pad at the origin, all moved together."""
    def __init__(self, n, seed):
        self.rng = np.random.default_rng(seed)
        self.pos = np.zeros((n, 2), np.float32)
        self.vel = np.zeros((n, 2), np.float32)
        self.angle, self.spin, self.fuel = np.zeros((3, n), np.float32)
        self.age = np.zeros(n, np.int32)
        self.reset(np.ones(n, bool))

    def reset(self, mask):
        k = int(mask.sum())
        self.pos[mask] = self.rng.uniform((-0.7, 1.0), (0.7, 1.4), (k, 2))
        self.vel[mask] = self.rng.normal(0.0, 0.2, (k, 2))
        self.angle[mask] = self.rng.normal(0.0, 0.1, k)
        self.spin[mask], self.fuel[mask], self.age[mask] = 0.0, 1.0, 0

    def observe(self):
        pose = np.stack([np.sin(self.angle), np.cos(self.angle), self.spin, self.fuel], axis=1)
        return np.concatenate([self.pos, self.vel, pose], axis=1)

    def potential(self):
        return (-np.linalg.norm(self.pos, axis=1) - 0.5 * np.linalg.norm(self.vel, axis=1)
                - 0.5 * np.abs(self.angle))

    def step(self, action):
        before = self.potential()
        main = np.clip(0.5 * (action[:, 0] + 1.0), 0.0, 1.0) * (self.fuel > 0)
        for _ in range(SUBSTEPS):
            self.spin -= DT * 3.0 * action[:, 1]
            self.angle += DT * self.spin
            self.vel[:, 0] -= DT * 2.5 * main * np.sin(self.angle)
            self.vel[:, 1] += DT * (2.5 * main * np.cos(self.angle) - 1.0)
            self.pos += DT * self.vel
        self.fuel -= 0.01 * main
        self.age += 1
        x, y = self.pos.T
        soft = ((y <= 0) & (np.linalg.norm(self.vel, axis=1) < 0.4)
                & (np.abs(self.angle) < 0.3) & (np.abs(x) < 0.15))
        done = (y <= 0) | (y > 2.0) | (np.abs(x) > SPAN)
        reward = (10.0 * (self.potential() - before) - 0.05 * main
                  + np.where(soft, 10.0, 0.0) - np.where(done & ~soft, 10.0, 0.0))
        over = done | (self.age >= MAX_AGE)
        final = self.observe()
        if over.any():
            self.reset(over)
        return self.observe(), final, reward.astype(np.float32), done, over


class Replay:
    """Ring of transitions, one row each; drawn by priority among random candidates."""
    def __init__(self, capacity, seed, alpha=0.6, beta=0.5):
        self.rng = np.random.default_rng(seed)
        self.rows = np.zeros((capacity, ROW), np.float32)
        self.priority = np.zeros(capacity, np.float32)
        self.capacity, self.alpha, self.beta = capacity, alpha, beta
        self.size, self.head, self.top = 0, 0, 1.0

    def add(self, obs, action, reward, done, next_obs):
        slots = (self.head + np.arange(len(obs))) % self.capacity
        self.rows[slots] = np.concatenate(
            [obs, next_obs, action, reward[:, None], done[:, None]], axis=1)
        self.priority[slots] = self.top
        self.head = (self.head + len(obs)) % self.capacity
        self.size = min(self.size + len(obs), self.capacity)

    def sample(self, n):
        candidates = self.rng.integers(self.size, size=4 * n)
        mass = np.cumsum(self.priority[candidates])
        draw = np.searchsorted(mass, self.rng.random(n) * mass[-1])
        idx = candidates[np.minimum(draw, 4 * n - 1)]
        weights = self.priority[idx] ** -self.beta
        return idx, self.rows[idx], weights / weights.max()

    def set_priority(self, idx, td):
        priority = (np.asarray(td) + 1e-3) ** self.alpha
        self.priority[idx] = priority
        self.top = max(self.top, float(priority.max()))


def actor_fn(obs):
    mean, log_std = jnp.split(hk.nets.MLP([HIDDEN, HIDDEN, 2 * ACT])(obs), 2, axis=-1)
    return mean, jnp.clip(log_std, -5.0, 1.0)


def critic_fn(obs, action):
    x = jnp.concatenate([obs, action], axis=-1)
    return [hk.nets.MLP([HIDDEN, HIDDEN, 1], name=name)(x)[:, 0] for name in ("q1", "q2")]


actor = hk.without_apply_rng(hk.transform(actor_fn))
critic = hk.without_apply_rng(hk.transform(critic_fn))
optimiser = optax.chain(optax.clip_by_global_norm(20.0), optax.adam(3e-4))


def sample_action(params, obs, key):
    mean, log_std = actor.apply(params, obs)
    noise = jax.random.normal(key, mean.shape)
    raw = mean + jnp.exp(log_std) * noise
    log_prob = -0.5 * noise**2 - log_std - 0.5 * jnp.log(2 * jnp.pi)
    log_prob -= 2.0 * (jnp.log(2.0) - raw - jax.nn.softplus(-2.0 * raw))
    return jnp.tanh(raw), log_prob.sum(axis=-1)


@jax.jit
def policy(params, obs, key):
    key, sub = jax.random.split(key)
    return sample_action(params, obs, sub)[0], key


def gradients(state, rows, weights, entropy_goal, cfg):
    params = state["params"]
    obs, next_obs, action, reward, done = jnp.split(
        rows, [OBS, 2 * OBS, 2 * OBS + ACT, 2 * OBS + ACT + 1], axis=1)
    key, k_next, k_actor = jax.random.split(state["key"], 3)
    temperature = jnp.exp(params["log_t"])
    next_action, next_log_prob = sample_action(params["actor"], next_obs, k_next)
    next_q = jnp.minimum(*critic.apply(state["target"], next_obs, next_action))
    goal = reward[:, 0] + cfg.gamma * (1 - done[:, 0]) * (next_q - temperature * next_log_prob)

    def critic_loss(p):
        e1, e2 = (q - goal for q in critic.apply(p, obs, action))
        return jnp.mean(weights * (e1**2 + e2**2)), 0.5 * (jnp.abs(e1) + jnp.abs(e2))

    def actor_loss(p):
        new_action, log_prob = sample_action(p, obs, k_actor)
        q = jnp.minimum(*critic.apply(params["critic"], obs, new_action))
        return jnp.mean(temperature * log_prob - q), log_prob

    (c_loss, td), c_grad = jax.value_and_grad(critic_loss, has_aux=True)(params["critic"])
    (a_loss, log_prob), a_grad = jax.value_and_grad(actor_loss, has_aux=True)(params["actor"])
    t_grad = -temperature * jnp.mean(log_prob + entropy_goal)
    grads = {"actor": a_grad, "critic": c_grad, "log_t": t_grad}
    return grads, key, td, {"critic": c_loss, "actor": a_loss, "temperature": temperature}


@partial(jax.jit, static_argnames=("cfg",), donate_argnums=(0,))
def update(state, rows, weights, entropy_goal, cfg):
    grads, key, td, metrics = gradients(state, rows, weights, entropy_goal, cfg)
    updates, opt = optimiser.update(grads, state["opt"], state["params"])
    params = optax.apply_updates(state["params"], updates)
    target = optax.incremental_update(params["critic"], state["target"], cfg.tau)
    return {"params": params, "target": target, "opt": opt, "key": key}, td, metrics


def main(steps):
    cfg, landers, replay = Config(), Landers(LANDERS, seed=0), Replay(CAPACITY, seed=1)
    k_actor, k_critic, key, act_key = jax.random.split(jax.random.PRNGKey(2), 4)
    obs, rng = landers.observe(), np.random.default_rng(3)
    for _ in range(PREFILL):
        action = rng.uniform(-1.0, 1.0, (LANDERS, ACT)).astype(np.float32)
        following, final, reward, done, _ = landers.step(action)
        replay.add(obs, action, reward, done, final)
        obs = following
    params = {"actor": actor.init(k_actor, obs), "critic": critic.init(k_critic, obs, action),
              "log_t": jnp.asarray(-1.5, jnp.float32)}
    state = {"params": params, "target": jax.tree.map(jnp.copy, params["critic"]),
             "opt": optimiser.init(params), "key": key}
    entropy_goal, anneal_every = -1.0, max(1, steps // 50)
    episode, recent, pending = np.zeros(LANDERS, np.float32), deque(maxlen=200), None
    warm, start = steps // 4, time.perf_counter()
    for step in range(steps):
        if step == warm:
            jax.block_until_ready(state)
            start = time.perf_counter()
        action, act_key = policy(state["params"]["actor"], obs, act_key)
        action = np.asarray(action)
        if pending is not None:  # errors of the update before, ready by now
            replay.set_priority(*pending)
        if step % anneal_every == 0:
            entropy_goal = max(entropy_goal - 0.02, -float(ACT))
        idx, rows, weights = replay.sample(BATCH)
        state, td, metrics = update(state, rows, weights, entropy_goal, cfg)
        pending = (idx, td)
        # the landers move while the update runs
        following, final, reward, done, over = landers.step(action)
        replay.add(obs, action, reward, done, final)
        obs = following
        episode += reward
        recent.extend(episode[over].tolist())
        episode[over] = 0.0
        if step % 500 == 0:
            text = "  ".join(f"{name} {float(value):.3f}" for name, value in metrics.items())
            print(f"step {step}  return {np.mean(recent) if recent else 0.0:.2f}  {text}", flush=True)
    jax.block_until_ready(state)
    seconds = time.perf_counter() - start
    print(f"done {steps - warm} steps in {seconds:.3f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 6000)
