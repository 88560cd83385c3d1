"""A small Dreamer-like agent: latent world model + imagined actor-critic on a swing-up task.

usage: python dream_pendulum.py [STEPS]        (STEPS = gradient steps)
"""
import functools
import sys
import time
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax

OBS, ACT, LATENT, DETER = 24, 2, 16, 96
N_ENVS, CAPACITY, BATCH, UNROLL, HORIZON = 8, 80_000, 12, 12, 8
NUM_STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 3000

class SwingUp:
    """A row of independent pendula seen through a fixed random camera (numpy, vectorised)."""

    def __init__(self, n, seed):
        self.rng = np.random.default_rng(seed)
        self.camera = self.rng.normal(size=(4, OBS)).astype(np.float32) / 2
        self.th = self.rng.uniform(-3, 3, (n, 2)).astype(np.float32)
        self.om = np.zeros((n, 2), np.float32)

    def observe(self):
        feats = np.concatenate([np.sin(self.th), np.cos(self.th)], -1)
        return np.tanh(feats @ self.camera)

    def step(self, u):
        self.om = 0.98 * self.om + 0.05 * (u * 2 - 9.8 / 5 * np.sin(self.th))
        self.th = self.th + 0.05 * self.om
        reward = -np.cos(self.th).sum(-1) - 0.01 * (u**2).sum(-1)
        return self.observe(), reward.astype(np.float32)

class Rssm(nn.Module):
    @nn.compact
    def __call__(self, carry, xs):
        h, z = carry
        act, embed, noise = xs
        h, _ = nn.GRUCell(DETER, name="core")(h, jnp.concatenate([z, act], -1))
        pm, ps = jnp.split(nn.Dense(2 * LATENT, name="prior")(h), 2, -1)
        qm, qs = jnp.split(nn.Dense(2 * LATENT, name="post")(jnp.concatenate([h, embed], -1)), 2, -1)
        ps, qs = nn.softplus(ps) + 0.1, nn.softplus(qs) + 0.1
        z = qm + qs * noise
        kl = (jnp.log(ps / qs) + (qs**2 + (qm - pm) ** 2) / (2 * ps**2) - 0.5).sum(-1).mean()
        return (h, z), (jnp.concatenate([h, z], -1), kl)

class WorldModel(nn.Module):
    @nn.compact
    def __call__(self, obs, act, key):
        """obs [T, B, O], act [T, B, A] -> stacked (deter, stoch), decoded obs, reward, kl"""
        embed = nn.Dense(64)(nn.elu(nn.Dense(64)(obs)))
        rssm = nn.scan(Rssm, variable_broadcast="params", split_rngs={"params": False})(name="rssm")
        n = obs.shape[1]
        noise = jax.random.normal(key, obs.shape[:2] + (LATENT,))
        _, (feat, kl) = rssm((jnp.zeros((n, DETER)), jnp.zeros((n, LATENT))), (act, embed, noise))
        recon = nn.Dense(OBS)(nn.elu(nn.Dense(96)(feat)))
        return feat, recon, self.reward(feat), kl.mean()

    @nn.compact
    def reward(self, feat):
        return nn.Dense(1, name="rew_out")(nn.elu(nn.Dense(64, name="rew_in")(feat)))[..., 0]

class Head(nn.Module):
    out: int

    @nn.compact
    def __call__(self, x):
        for _ in range(2):
            x = nn.elu(nn.Dense(96)(x))
        return nn.Dense(self.out)(x)

@flax.struct.dataclass
class Learner:
    params: Any
    opt: Any

wm, actor, critic = WorldModel(), Head(ACT), Head(1)
wm_tx = optax.chain(optax.clip_by_global_norm(100.0), optax.adamw(6e-4))
ac_tx = optax.chain(optax.clip_by_global_norm(100.0), optax.adamw(1e-4))

def imagine(wp, ap, feat, key):
    """Roll the prior forward under the actor."""
    cell = nn.GRUCell(DETER)

    def tick(carry, k):
        h, z = carry
        a = jnp.tanh(actor.apply(ap, jnp.concatenate([h, z], -1)))
        h, _ = cell.apply({"params": wp["params"]["rssm"]["core"]}, h, jnp.concatenate([z, a], -1))
        m, s = jnp.split(nn.Dense(2 * LATENT).apply({"params": wp["params"]["rssm"]["prior"]}, h), 2, -1)
        z = m + (nn.softplus(s) + 0.1) * jax.random.normal(k, m.shape)
        return (h, z), jnp.concatenate([h, z], -1)

    start = (feat[:, :DETER], feat[:, DETER:])
    return jax.lax.scan(tick, start, jax.random.split(key, HORIZON))[1]

@functools.partial(jax.jit, donate_argnums=(0,))
def replay_add(replay, pos, obs, act, rew):
    new = {"obs": obs, "act": act, "rew": rew}
    return jax.tree.map(lambda r, n: jax.lax.dynamic_update_slice_in_dim(r, n[None], pos, 0), replay, new)

@jax.jit
def replay_sample(replay, limit, key):
    k1, k2 = jax.random.split(key)
    start = jax.random.randint(k1, (BATCH,), 0, limit - UNROLL)
    env = jax.random.randint(k2, (BATCH,), 0, N_ENVS)
    rows = start[None, :] + jnp.arange(UNROLL)[:, None]
    return jax.tree.map(lambda r: r[rows, env[None, :]], replay)

@jax.jit
def wm_grads(params, batch, key):
    def loss_fn(p):
        feat, recon, rew, kl = wm.apply(p, batch["obs"], batch["act"], key)
        rec = ((recon - batch["obs"]) ** 2).sum(-1).mean() + ((rew - batch["rew"]) ** 2).mean()
        return rec + jnp.maximum(kl, 1.0), (feat.reshape(-1, DETER + LATENT), rec)

    return jax.grad(loss_fn, has_aux=True)(params)

@functools.partial(jax.jit, donate_argnums=(0,))
def wm_apply(state, grads):
    updates, opt = wm_tx.update(grads, state.opt, state.params)
    return state.replace(params=optax.apply_updates(state.params, updates), opt=opt)

@functools.partial(jax.jit, donate_argnums=(0, 1))
def behave(state, slow, wp, feat, key):
    def loss_fn(p):
        traj = imagine(wp, p["actor"], jax.lax.stop_gradient(feat), key)
        rew = wm.apply(wp, traj, method="reward")
        boot = critic.apply(slow, traj)[..., 0]

        def back(acc, rv):
            acc = rv[0] + 0.97 * (0.05 * rv[1] + 0.95 * acc)
            return acc, acc

        _, ret = jax.lax.scan(back, boot[-1], (rew, boot), reverse=True)
        v = critic.apply(p["critic"], jax.lax.stop_gradient(traj))[..., 0]
        return -ret.mean() + ((v - jax.lax.stop_gradient(ret)) ** 2).mean(), ret.mean()

    grads, ret = jax.grad(loss_fn, has_aux=True)(state.params)
    updates, opt = ac_tx.update(grads, state.opt, state.params)
    params = optax.apply_updates(state.params, updates)
    slow = optax.incremental_update(params["critic"], slow, 0.02)
    return state.replace(params=params, opt=opt), slow, ret

class Agent:
    def __init__(self, seed=0):
        self.key = jax.random.key(seed)
        k = jax.random.split(self.key, 4)
        feat0, o0 = jnp.zeros((1, DETER + LATENT)), jnp.zeros((UNROLL, 1, OBS))
        wp = jax.jit(wm.init)(k[0], o0, jnp.zeros((UNROLL, 1, ACT)), k[1])
        ac = {"actor": jax.jit(actor.init)(k[2], feat0), "critic": jax.jit(critic.init)(k[3], feat0)}
        self.slow = jax.tree.map(jnp.copy, ac["critic"])
        self.world, self.ac = Learner(wp, wm_tx.init(wp)), Learner(ac, ac_tx.init(ac))
        self.replay = {"obs": jnp.zeros((CAPACITY, N_ENVS, OBS)), "act": jnp.zeros((CAPACITY, N_ENVS, ACT)),
                       "rew": jnp.zeros((CAPACITY, N_ENVS))}
        self.env, self.rng, self.pos = SwingUp(N_ENVS, seed), np.random.default_rng(seed), 0
        self.u = np.zeros((N_ENVS, ACT), np.float32)

    def explore(self):
        """One tick of every environment under smooth random torques."""
        self.u = (0.9 * self.u + 0.4 * self.rng.standard_normal(self.u.shape)).astype(np.float32)
        obs, rew = self.env.step(np.clip(self.u, -1, 1))
        self.replay = replay_add(self.replay, self.pos % CAPACITY, obs, self.u, rew)
        self.pos += 1

    def learn(self):
        self.key, k1, k2, k3 = jax.random.split(self.key, 4)
        batch = replay_sample(self.replay, min(self.pos, CAPACITY), k1)
        grads, (feat, rec) = wm_grads(self.world.params, batch, k2)
        self.world = wm_apply(self.world, grads)
        self.ac, self.slow, ret = behave(self.ac, self.slow, self.world.params, feat, k3)
        return rec, ret

def main():
    agent = Agent()
    for _ in range(4 * UNROLL):
        agent.explore()
    skip = NUM_STEPS // 4
    for i in range(NUM_STEPS):
        if i == skip:
            jax.block_until_ready((agent.world, agent.ac))
            began = time.perf_counter()
        agent.explore()
        rec, ret = agent.learn()
        if i % 100 == 0:
            print(f"[{i}] recon {float(rec):.3f} imagined {float(ret):.3f}")
    jax.block_until_ready((agent.world, agent.ac, agent.slow))
    print(f"done {NUM_STEPS - skip} steps in {time.perf_counter() - began:.3f} s")

if __name__ == "__main__":
    main()
