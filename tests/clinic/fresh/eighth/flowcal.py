"""RealNVP flow for calorimeter showers, conditional on the beam energy.

Plain jax: parameters are nested lists, the optimiser is a hand-written Adam.
"""
import dataclasses
import functools
import os
import subprocess
import sys
import tempfile
import time

import jax
import jax.numpy as jnp
import numpy as np


@dataclasses.dataclass(frozen=True)
class Config:
    features: int = 12
    couplings: int = 6
    hidden: int = 64
    batch: int = 1024
    micro: int = 1024
    lr: float = 1e-3
    clip: float = 5.0
    showers: int = 60_000
    log_every: int = 50
    save_every: int = 500
    warmup: int = 5


def simulate(cfg, seed):
    """Energy fractions by layer of gamma-like longitudinal profiles, in logits."""
    rng = np.random.default_rng(seed)
    energy = rng.uniform(10.0, 100.0, size=(cfg.showers, 1)).astype(np.float32)
    depth = np.arange(1, cfg.features + 1, dtype=np.float32)[None]
    peak = 2.0 + 0.8 * np.log(energy) + 0.3 * rng.normal(size=energy.shape)
    width = 0.5 + 0.05 * rng.normal(size=energy.shape)
    profile = depth ** (peak * width) * np.exp(-depth * width)
    profile *= rng.gamma(20.0, 1 / 20.0, size=profile.shape)
    x = np.log(profile / profile.sum(axis=1, keepdims=True) + 1e-6)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    cond = (np.log(energy) - 3.8) / 0.6
    return x.astype(np.float32), cond.astype(np.float32)


def dense(key, n_in, n_out, scale=1.0):
    w = jax.random.normal(key, (n_in, n_out), jnp.float32) * scale / np.sqrt(n_in)
    return {"w": w, "b": jnp.zeros((n_out,), jnp.float32)}


def init_flow(cfg, key):
    half = cfg.features // 2
    params = []
    for k in jax.random.split(key, cfg.couplings):
        a, b, c = jax.random.split(k, 3)
        params.append({
            "in": dense(a, half + 1, cfg.hidden),
            "mid": dense(b, cfg.hidden, cfg.hidden),
            "out": dense(c, cfg.hidden, 2 * half, 0.05),
        })
    return params


def apply(layer, x):
    return x @ layer["w"] + layer["b"]


def log_prob(params, x, cond):
    half = x.shape[-1] // 2
    a, b = x[:, :half], x[:, half:]
    logdet = jnp.zeros(x.shape[0], x.dtype)
    for p in params:
        h = jnp.tanh(apply(p["in"], jnp.concatenate([a, cond], axis=-1)))
        h = jnp.tanh(apply(p["mid"], h))
        s, t = jnp.split(apply(p["out"], h), 2, axis=-1)
        s = 2.0 * jnp.tanh(s)
        b = b * jnp.exp(s) + t
        logdet = logdet + s.sum(axis=-1)
        a, b = b, a
    z = jnp.concatenate([a, b], axis=-1)
    return logdet - 0.5 * jnp.sum(z**2, axis=-1) - 0.5 * z.shape[-1] * jnp.log(2 * jnp.pi)


def nll(params, x, cond):
    return -jnp.mean(log_prob(params, x, cond))


@jax.jit
def clip_by_norm(grads, limit):
    norm = jnp.sqrt(sum(jnp.sum(g**2) for g in jax.tree.leaves(grads)))
    return jax.tree.map(lambda g: g * jnp.minimum(1.0, limit / (norm + 1e-6)), grads)


def adam(params, grads, opt, lr, b1=0.9, b2=0.999, eps=1e-8):
    t = opt["t"] + 1
    m = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, opt["m"], grads)
    v = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, opt["v"], grads)
    scale = lr * jnp.sqrt(1 - b2**t) / (1 - b1**t)
    params = jax.tree.map(lambda p, m, v: p - scale * m / (jnp.sqrt(v) + eps), params, m, v)
    return params, {"t": t, "m": m, "v": v}


def gradients(cfg, params, x, cond):
    """Mean loss and gradient over the batch, by micro batches."""
    xs = x.reshape(-1, cfg.micro, x.shape[-1])
    cs = cond.reshape(-1, cfg.micro, 1)

    def body(acc, part):
        out = jax.value_and_grad(nll)(params, *part)
        return jax.tree.map(jnp.add, acc, out), None

    zero = (jnp.float32(0.0), jax.tree.map(jnp.zeros_like, params))
    total, _ = jax.lax.scan(body, zero, (xs, cs))
    return jax.tree.map(lambda v: v / xs.shape[0], total)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=(1,))
def train_step(cfg, state, data, key):
    params, opt = state
    idx = jax.random.randint(key, (cfg.batch,), 0, data[0].shape[0])
    loss, grads = gradients(cfg, params, data[0][idx], data[1][idx])
    grads = clip_by_norm(grads, cfg.clip)
    return adam(params, grads, opt, cfg.lr), loss


def save(folder, step, params):
    leaves = [np.asarray(v) for v in jax.tree.leaves(params)]
    np.savez(os.path.join(folder, f"flow_{step}.npz"), *leaves)


def train(cfg, steps, folder):
    x, cond = simulate(cfg, seed=3)
    data = (jax.device_put(x), jax.device_put(cond))
    params = init_flow(cfg, jax.random.PRNGKey(0))
    zeros = jax.tree.map(jnp.zeros_like, params)
    state = (params, {"t": jnp.zeros((), jnp.int32), "m": zeros, "v": jax.tree.map(jnp.zeros_like, params)})
    keys = iter(jax.random.split(jax.random.PRNGKey(7), steps))
    history = []
    for step in range(steps):
        if step == cfg.warmup:
            jax.block_until_ready(state)
            start = time.perf_counter()
        state, loss = train_step(cfg, state, data, next(keys))
        if step % cfg.log_every == 0:
            history.append(float(loss))
            with open(os.path.join(folder, "log.txt"), "a") as f:
                f.write(f"{step} {history[-1]:.4f}\n")
            print(f"step {step}: nll {history[-1]:.4f}", flush=True)
        if step and step % cfg.save_every == 0:
            save(folder, step, state[0])
    jax.block_until_ready(state)
    return steps - cfg.warmup, time.perf_counter() - start


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 30000
    cfg = Config()
    with tempfile.TemporaryDirectory(prefix="flowcal_") as folder:
        where = subprocess.run(["uname", "-n"], capture_output=True, text=True).stdout.strip()
        print(f"training on {where or 'this machine'}: {cfg}", flush=True)
        n, wall = train(cfg, steps, folder)
    print(f"done {n} steps in {wall:.3f} s", flush=True)


if __name__ == "__main__":
    main()
