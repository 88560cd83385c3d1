"""Implicit Q-learning from a logged data set of a toy process plant.

Twin Q networks with target copies, an expectile value network and a policy by
advantage weighted regression.  Plain jax, three jitted updates a step.
Usage: python logged_iql.py [STEPS]
"""
import sys
import time
from collections import namedtuple
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax

OBS, ACT, HIDDEN, BATCH = 24, 6, 256, 256
GAMMA, TAU, EXPECTILE, BETA = 0.98, 0.005, 0.8, 3.0

Log = namedtuple("Log", "obs act rew nxt live")
Learner = namedtuple("Learner", "params opt")


def record_log(n=150_000, seed=5):
    """Transitions as a mediocre controller of a stable linear plant produced them."""
    rng = np.random.default_rng(seed)
    a = rng.normal(0, 1, (OBS, OBS))
    a *= 0.95 / np.abs(np.linalg.eigvals(a)).max()
    b = rng.normal(0, 0.5, (ACT, OBS))
    gain = rng.normal(0, 0.1, (OBS, ACT))
    lanes, obs, rows = 500, None, []
    for t in range(n // lanes):
        if obs is None or t % 50 == 0:
            obs = rng.normal(0, 1, (lanes, OBS))
        act = np.tanh(obs @ gain + rng.normal(0, 0.4, (lanes, ACT)))
        nxt = obs @ a + act @ b + rng.normal(0, 0.05, (lanes, OBS))
        nxt = np.clip(nxt, -5, 5)
        rew = -0.1 * (nxt ** 2).mean(1) - 0.02 * (act ** 2).mean(1)
        live = np.full(lanes, float(t % 50 != 49))
        rows.append((obs, act, rew, nxt, live))
        obs = nxt
    return Log(*(np.concatenate(c).astype(np.float32) for c in zip(*rows)))


def mlp_init(key, sizes):
    keys = jax.random.split(key, len(sizes) - 1)
    return [
        {"w": jax.random.normal(k, (i, o), jnp.float32) * (2.0 / i) ** 0.5, "b": jnp.zeros(o)}
        for k, i, o in zip(keys, sizes[:-1], sizes[1:])
    ]


def mlp(layers, x):
    for layer in layers[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return x @ layers[-1]["w"] + layers[-1]["b"]


def twin_q(params, obs, act):
    x = jnp.concatenate([obs, act], -1)
    return mlp(params["one"], x)[:, 0], mlp(params["two"], x)[:, 0]


optim = optax.adam(3e-4)


def descend(learner, loss):
    value, grads = jax.value_and_grad(loss)(learner.params)
    updates, opt = optim.update(grads, learner.opt, learner.params)
    return Learner(optax.apply_updates(learner.params, updates), opt), value


@jax.jit
def draw(log, key, i):
    rows = jax.random.randint(jax.random.fold_in(key, i), (BATCH,), 0, log.rew.shape[0])
    return Log(*(column[rows] for column in log))


@partial(jax.jit, donate_argnums=0)
def improve_value(value, target, batch):
    q = jnp.minimum(*twin_q(target, batch.obs, batch.act))

    def loss(p):
        d = q - mlp(p, batch.obs)[:, 0]
        weight = jnp.where(d > 0, EXPECTILE, 1 - EXPECTILE)
        return (weight * d ** 2).mean()

    return descend(value, loss)


@partial(jax.jit, donate_argnums=(0, 1))
def improve_critic(critic, target, value_params, batch):
    goal = batch.rew + GAMMA * batch.live * mlp(value_params, batch.nxt)[:, 0]

    def loss(p):
        one, two = twin_q(p, batch.obs, batch.act)
        return ((one - goal) ** 2 + (two - goal) ** 2).mean()

    critic, err = descend(critic, loss)
    target = jax.tree.map(lambda t, p: t + TAU * (p - t), target, critic.params)
    return critic, target, err


@partial(jax.jit, donate_argnums=0)
def improve_actor(actor, target, value_params, batch):
    q = jnp.minimum(*twin_q(target, batch.obs, batch.act))
    adv = q - mlp(value_params, batch.obs)[:, 0]
    weight = jnp.minimum(jnp.exp(BETA * adv), 100.0)

    def loss(p):
        mean = jnp.tanh(mlp(p["net"], batch.obs))
        dev = (batch.act - mean) * jnp.exp(-p["log_std"])
        logp = (-0.5 * dev ** 2 - p["log_std"]).sum(-1)
        return -(weight * logp).mean()

    return descend(actor, loss)


@jax.jit
def agreement(actor_params, batch):
    mean = jnp.tanh(mlp(actor_params["net"], batch.obs))
    return jnp.abs(mean - batch.act).mean()


def start_learner(params):
    return Learner(params, optim.init(params))


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 18_000
    log = record_log()
    log = jax.device_put(log)
    k_one, k_two, k_v, k_pi, key = jax.random.split(jax.random.key(0), 5)
    q_sizes = (OBS + ACT, HIDDEN, HIDDEN, 1)
    critic = start_learner({"one": mlp_init(k_one, q_sizes), "two": mlp_init(k_two, q_sizes)})
    target = jax.tree.map(jnp.copy, critic.params)
    value = start_learner(mlp_init(k_v, (OBS, HIDDEN, HIDDEN, 1)))
    actor = start_learner({"net": mlp_init(k_pi, (OBS, HIDDEN, HIDDEN, ACT)),
                           "log_std": jnp.zeros(ACT)})
    warm = min(10, steps // 4)
    began = time.perf_counter()
    for i in range(steps):
        if i == warm:
            jax.block_until_ready((critic, actor))
            began = time.perf_counter()
        batch = draw(log, key, np.int32(i))
        value, v_err = improve_value(value, target, batch)
        critic, target, q_err = improve_critic(critic, target, value.params, batch)
        actor, pi_err = improve_actor(actor, target, value.params, batch)
        if (i + 1) % 100 == 0:
            print(f"{i + 1:6d}  v {float(v_err):.4f}  q {float(q_err):.4f}  pi {float(pi_err):.3f}")
        if (i + 1) % 500 == 0:
            print(f"        distance to logged actions {float(agreement(actor.params, batch)):.3f}")
    jax.block_until_ready((value, critic, target, actor))
    print(f"done {steps - warm} steps in {time.perf_counter() - began:.3f} s")


if __name__ == "__main__":
    main()
