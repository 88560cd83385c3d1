"""Advantage actor-critic on a vectorised 2-D hover task (env in NumPy, net in equinox)."""
import sys
import time
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

N_ENVS, T_ROLL, N_ACT, OBS = 256, 32, 5, 10
GAMMA, LAM = 0.99, 0.95


class HoverVec:
    """N little craft with four thrusters; hold position over a moving pad."""

    THRUST = np.array([[0, 0], [0, 1.6], [0, -0.4], [-0.8, 0], [0.8, 0]], np.float32)

    def __init__(self, n, seed):
        self.n, self.rng = n, np.random.default_rng(seed)
        self.pos = np.zeros((n, 2), np.float32)
        self.vel = np.zeros((n, 2), np.float32)
        self.pad = np.zeros((n, 2), np.float32)
        self.age = np.zeros(n, np.int32)
        self._reset(np.ones(n, bool))

    def _reset(self, mask):
        k = int(mask.sum())
        if k:
            self.pos[mask] = self.rng.uniform(-1, 1, (k, 2))
            self.vel[mask] = 0.0
            self.pad[mask] = self.rng.uniform(-0.5, 0.5, (k, 2))
            self.age[mask] = 0

    def observe(self):
        rel = self.pad - self.pos
        dist = np.sqrt((rel**2).sum(1, keepdims=True))
        t = self.age[:, None] / 200.0
        return np.concatenate([self.pos, self.vel, self.pad, rel, dist, t], 1, dtype=np.float32)

    def step(self, act):
        self.vel += 0.05 * (self.THRUST[act] - np.array([0, 0.6], np.float32))
        self.pos += 0.05 * self.vel
        self.age += 1
        dist = np.abs(self.pad - self.pos).sum(1)
        out = np.abs(self.pos).max(1) > 2.0
        done = out | (self.age >= 200)
        reward = (0.5 - dist - 5.0 * out).astype(np.float32)
        self._reset(done)
        return self.observe(), reward, done


class ActorCritic(eqx.Module):
    body: eqx.nn.MLP
    pi: eqx.nn.Linear
    v: eqx.nn.Linear

    def __init__(self, key):
        a, b, c = jax.random.split(key, 3)
        self.body = eqx.nn.MLP(OBS, 128, 128, depth=2, final_activation=jax.nn.tanh, key=a)
        self.pi = eqx.nn.Linear(128, N_ACT, key=b)
        self.v = eqx.nn.Linear(128, "scalar", key=c)

    def __call__(self, obs):
        h = self.body(obs)
        return self.pi(h), self.v(h)


class Batch(NamedTuple):
    obs: np.ndarray
    act: np.ndarray
    adv: np.ndarray
    ret: np.ndarray


def gae(rew, val, done):
    adv = np.zeros_like(rew)
    last = np.zeros(rew.shape[1], np.float32)
    for t in reversed(range(len(rew))):
        live = 1.0 - done[t]
        delta = rew[t] + GAMMA * val[t + 1] * live - val[t]
        last = delta + GAMMA * LAM * live * last
        adv[t] = last
    return adv, adv + val[:-1]


class Agent:
    def __init__(self, seed=0):
        self.key = jax.random.key(seed)
        net = ActorCritic(jax.random.key(seed + 1))
        self.params, static = eqx.partition(net, eqx.is_array)
        self.opt = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(7e-4))
        self.opt_state = self.opt.init(self.params)
        self.env = HoverVec(N_ENVS, seed)
        self.obs = self.env.observe()

        def act(params, obs, key):
            key, sub = jax.random.split(key)
            logits, value = jax.vmap(eqx.combine(params, static))(obs)
            return jax.random.categorical(sub, logits), value, key

        def loss_fn(params, b):
            logits, value = jax.vmap(eqx.combine(params, static))(b.obs)
            logp = jax.nn.log_softmax(logits)
            chosen = jnp.take_along_axis(logp, b.act[:, None], 1)[:, 0]
            adv = (b.adv - b.adv.mean()) / (b.adv.std() + 1e-6)
            entropy = -(jnp.exp(logp) * logp).sum(1).mean()
            return -(chosen * adv).mean() + 0.5 * ((value - b.ret) ** 2).mean() - 0.01 * entropy

        def learn(params, opt_state, b):
            loss, grads = jax.value_and_grad(loss_fn)(params, b)
            updates, opt_state = self.opt.update(grads, opt_state)
            return eqx.apply_updates(params, updates), opt_state, loss

        self.act = jax.jit(act)
        self.learn = jax.jit(learn, donate_argnums=(0, 1))

    def collect(self):
        obs_buf = np.empty((T_ROLL, N_ENVS, OBS), np.float32)
        act_buf = np.empty((T_ROLL, N_ENVS), np.int32)
        rew, done = np.empty((2, T_ROLL, N_ENVS), np.float32)
        val = np.empty((T_ROLL + 1, N_ENVS), np.float32)
        for t in range(T_ROLL):
            action, value, self.key = self.act(self.params, self.obs, self.key)
            obs_buf[t], val[t] = self.obs, value
            act_buf[t] = np.asarray(action)  # the env needs the actions: one read per tick
            self.obs, rew[t], done[t] = self.env.step(act_buf[t])
        val[-1] = self.act(self.params, self.obs, self.key)[1]
        adv, ret = gae(rew, val, done)
        self.mean_reward = rew.mean()
        return Batch(obs_buf.reshape(-1, OBS), act_buf.ravel(), adv.ravel(), ret.ravel())

    def iterate(self):
        batch = self.collect()
        self.params, self.opt_state, loss = self.learn(self.params, self.opt_state, batch)
        return loss


if __name__ == "__main__":
    total = int(sys.argv[1]) if len(sys.argv) > 1 else 12_000
    agent = Agent()
    for _ in range(4):
        agent.iterate()
    jax.block_until_ready(agent.params)
    start = time.perf_counter()
    for it in range(1, total + 1):
        loss = agent.iterate()
        if it % 1000 == 0:
            print(f"iter {it} reward/tick {agent.mean_reward:.3f} loss {float(loss):.3f}", flush=True)
    jax.block_until_ready(agent.params)
    print(f"done {total} steps in {time.perf_counter() - start:.4f} s")
