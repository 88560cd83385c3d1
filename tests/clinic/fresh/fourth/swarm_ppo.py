# PPO on a swarm of NumPy "lander on a pad" environments.
import dataclasses
import functools
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

@dataclasses.dataclass
class Hyper:
    envs: int = 256
    horizon: int = 16
    epochs: int = 2
    minibatches: int = 4
    gamma: float = 0.99
    lam: float = 0.95
    clip: float = 0.2
    lr: float = 3e-4
    entropy: float = 0.01
    width: int = 128
    iterations: int = 8000

class Landers:
    """x, y, vx, vy, wind; 4 discrete engines.  All environments advance together, in NumPy."""
    OBS, ACTIONS, LIMIT = 6, 4, 120
    THRUST = np.array([[0, 0], [0, 1.6], [-0.8, 0.3], [0.8, 0.3]], np.float32)

    def __init__(self, n, seed=0):
        self.n, self.rng = n, np.random.default_rng(seed)
        self.pos, self.vel = np.zeros((n, 2), np.float32), np.zeros((n, 2), np.float32)
        self.wind, self.age = np.zeros(n, np.float32), np.zeros(n, np.int32)
        self._reset(np.ones(n, bool))

    def _reset(self, who):
        k = int(who.sum())
        if k:
            self.pos[who] = self.rng.uniform([-2, 2], [2, 4], (k, 2))
            self.vel[who] = self.rng.normal(0, 0.3, (k, 2))
            self.wind[who] = self.rng.normal(0, 0.2, k)
            self.age[who] = 0

    def observe(self):
        return np.concatenate([self.pos, self.vel, self.wind[:, None],
                               self.age[:, None] / np.float32(self.LIMIT)], 1)

    def step(self, actions):
        acc = self.THRUST[actions]
        acc[:, 1] -= 0.8
        acc[:, 0] += self.wind
        self.vel += 0.1 * acc
        self.pos += 0.1 * self.vel
        self.age += 1
        dist = np.abs(self.pos[:, 0])
        speed = np.abs(self.vel).sum(1)
        down = self.pos[:, 1] <= 0
        lost = (dist > 4) | (self.pos[:, 1] > 6)
        reward = -0.02 * dist - 0.01 * speed - 0.02 * (actions > 0)
        reward += np.where(down, 4.0 - 2.0 * dist - 2.0 * speed, 0) - 3.0 * lost
        done = down | lost | (self.age >= self.LIMIT)
        self._reset(done)
        return self.observe(), reward.astype(np.float32), done

def init_params(key, hp):
    def dense(k, i, o, scale):
        return {"w": scale * jax.nn.initializers.orthogonal()(k, (i, o)), "b": jnp.zeros(o)}
    k = jax.random.split(key, 5)
    return {"t1": dense(k[0], Landers.OBS, hp.width, 1.4), "t2": dense(k[1], hp.width, hp.width, 1.4),
            "t3": dense(k[2], hp.width, hp.width, 1.4),
            "pi": dense(k[3], hp.width, Landers.ACTIONS, 0.01), "v": dense(k[4], hp.width, 1, 1.0)}

def network(params, obs):
    h = obs
    for name in ("t1", "t2", "t3"):
        h = jnp.tanh(h @ params[name]["w"] + params[name]["b"])
    logits = h @ params["pi"]["w"] + params["pi"]["b"]
    return jax.nn.log_softmax(logits), (h @ params["v"]["w"] + params["v"]["b"])[:, 0]

@jax.jit
def policy(params, key, obs):
    key, sub = jax.random.split(key)
    logp, value = network(params, obs)
    action = jax.random.categorical(sub, logp)
    return key, action, jnp.take_along_axis(logp, action[:, None], 1)[:, 0], value

def make_gae(hp):
    @jax.jit
    def gae(rewards, dones, values, last_value):
        adv, nxt, out = jnp.zeros_like(last_value), last_value, []
        for r, d, v in zip(rewards[::-1], dones[::-1], values[::-1]):
            live = 1.0 - d
            adv = r + hp.gamma * nxt * live - v + hp.gamma * hp.lam * live * adv
            nxt = v
            out.append(adv)
        adv = jnp.stack(out[::-1])
        return adv, adv + jnp.stack(values)
    return gae

def make_update(hp, tx):
    def loss_fn(params, mb, entropy):
        obs, act, old_logp, adv, ret = mb
        logp, value = network(params, obs)
        new = jnp.take_along_axis(logp, act[:, None], 1)[:, 0]
        adv = (adv - adv.mean()) / (adv.std() + 1e-6)
        ratio = jnp.exp(new - old_logp)
        surrogate = jnp.minimum(ratio * adv, jnp.clip(ratio, 1 - hp.clip, 1 + hp.clip) * adv)
        h = -jnp.sum(jnp.exp(logp) * logp, -1)
        return -surrogate.mean() + 0.5 * jnp.mean((value - ret) ** 2) - entropy * h.mean()

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def update(params, opt_state, key, data, entropy):
        data = jax.tree.map(lambda a: a.reshape((-1,) + a.shape[2:]), data)
        n = data[0].shape[0]

        def minibatch(carry, rows):
            params, opt_state = carry
            loss, g = jax.value_and_grad(loss_fn)(params, tuple(a[rows] for a in data), entropy)
            u, opt_state = tx.update(g, opt_state, params)
            return (optax.apply_updates(params, u), opt_state), loss

        orders = jax.vmap(lambda k: jax.random.permutation(k, n))(jax.random.split(key, hp.epochs))
        (params, opt_state), losses = jax.lax.scan(
            minibatch, (params, opt_state), orders.reshape(hp.epochs * hp.minibatches, -1))
        return params, opt_state, losses.mean()
    return update

def main(hp):
    env, key = Landers(hp.envs), jax.random.key(0)
    params = init_params(key, hp)
    tx = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(hp.lr))
    opt_state, gae, update = tx.init(params), make_gae(hp), make_update(hp, tx)
    act = functools.partial(policy)
    obs, recent = env.observe(), 0.0

    def iteration(it):
        nonlocal params, opt_state, key, obs, recent
        O, A, L, V, R, D = [], [], [], [], [], []
        for _ in range(hp.horizon):
            key, a, logp, v = act(params, key, obs)
            action = np.asarray(a)                     # the environment needs it on the host
            nxt, reward, done = env.step(action)
            for box, item in zip((O, A, L, V, R, D), (obs, a, logp, v, reward, done.astype(np.float32))):
                box.append(item)
            obs = nxt
        key, _, _, last_value = act(params, key, obs)
        adv, ret = gae(R, D, V, last_value)
        data = (np.stack(O), jnp.stack(A), jnp.stack(L), adv, ret)
        entropy = hp.entropy * max(0.1, 1.0 - it / hp.iterations)
        params, opt_state, loss = update(params, opt_state, jax.random.fold_in(key, it), data, entropy)
        recent = 0.95 * recent + 0.05 * float(np.mean(R))
        return loss

    for it in range(3):
        loss = iteration(it)
    jax.block_until_ready(params)
    start = time.perf_counter()
    for it in range(hp.iterations):
        loss = iteration(it)
        if it % 1000 == 999:
            print(f"iteration {it + 1}: reward {recent:+.3f}, loss {float(loss):.3f}", flush=True)
    jax.block_until_ready(params)
    print(f"done {hp.iterations} steps in {time.perf_counter() - start:.4f} s")

if __name__ == "__main__":
    hyper = Hyper()
    if len(sys.argv) > 1:
        hyper.iterations = int(sys.argv[1])
    main(hyper)
