"""SGHMC posterior sampling for a heavy-tailed factor model of asset returns.

32 chains run side by side (vmap); a "step" is a short trajectory of LEAPS leapfrog
moves under lax.scan in one jitted call, so the Python loop is not the limit although
the model is tiny.  Running moments are kept on the device (Welford).
"""
import dataclasses
import sys
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

CHAINS, FACTORS, ROWS, BATCH, LEAPS = 32, 16, 65536, 256, 16


@partial(jax.tree_util.register_dataclass,
         data_fields=["beta", "log_scale", "log_nu"], meta_fields=[])
@dataclasses.dataclass
class Position:
    beta: jax.Array
    log_scale: jax.Array
    log_nu: jax.Array


@partial(jax.tree_util.register_dataclass,
         data_fields=["pos", "mom", "mean", "m2", "n", "key"], meta_fields=[])
@dataclasses.dataclass
class Sampler:
    pos: Position
    mom: Position
    mean: Position
    m2: Position
    n: jax.Array
    key: jax.Array


def make_market(seed=1):
    rng = np.random.default_rng(seed)
    fac = rng.standard_normal((ROWS, FACTORS), dtype=np.float32)
    beta = rng.normal(0, 0.5, FACTORS).astype(np.float32)
    ret = fac @ beta + 0.3 * rng.standard_t(5, ROWS).astype(np.float32)
    return fac, ret.astype(np.float32)


def pointwise(pos, fac, ret):
    nu = 2.0 + jnp.exp(pos.log_nu)
    z = (ret - fac @ pos.beta) * jnp.exp(-pos.log_scale)
    const = gammaln((nu + 1) / 2) - gammaln(nu / 2) - 0.5 * jnp.log(nu * jnp.pi)
    return const - pos.log_scale - 0.5 * (nu + 1) * jnp.log1p(z * z / nu)


def log_joint(pos, fac, ret):
    prior = (-0.5 * jnp.sum(pos.beta ** 2) - 0.5 * pos.log_scale ** 2
             - 0.5 * (pos.log_nu - 1.0) ** 2)
    return prior + ROWS * jnp.mean(pointwise(pos, fac, ret))


score = jax.vmap(jax.value_and_grad(log_joint), in_axes=(0, None, None))


def noise_like(key, tree):
    leaves, tdef = jax.tree.flatten(tree)
    keys = jax.random.split(key, len(leaves))
    return tdef.unflatten([jax.random.normal(k, v.shape, v.dtype) for k, v in zip(keys, leaves)])


def leap(carry, _, fac_all, ret_all, eps, friction):
    pos, mom, key = carry
    key, kb, kn = jax.random.split(key, 3)
    rows = jax.random.randint(kb, (BATCH,), 0, ROWS)
    lp, g = score(pos, fac_all[rows], ret_all[rows])
    eta = noise_like(kn, mom)
    sd = jnp.sqrt(2 * friction * eps)
    mom = jax.tree.map(lambda m, d, e: (1 - friction) * m + eps * d + sd * e, mom, g, eta)
    pos = jax.tree.map(lambda q, m: q + m, pos, mom)
    return (pos, mom, key), lp


@partial(jax.jit, donate_argnums=(0,))
def trajectory(s, fac, ret):
    body = partial(leap, fac_all=fac, ret_all=ret, eps=1e-7, friction=0.05)
    (pos, mom, key), lps = jax.lax.scan(body, (s.pos, s.mom, s.key), None, length=LEAPS)
    n = s.n + 1
    delta = jax.tree.map(jnp.subtract, pos, s.mean)
    mean = jax.tree.map(lambda mu, d: mu + d / n, s.mean, delta)
    m2 = jax.tree.map(lambda a, d, q, mu: a + d * (q - mu), s.m2, delta, pos, mean)
    info = {"logp": lps[-1], "accepted": jnp.isfinite(lps).all(0)}
    return Sampler(pos, mom, mean, m2, n, key), info


def start(seed=0):
    k1, k2 = jax.random.split(jax.random.key(seed))
    pos = Position(0.1 * jax.random.normal(k1, (CHAINS, FACTORS)),
                   jnp.zeros(CHAINS), jnp.ones(CHAINS))
    z = lambda: jax.tree.map(jnp.zeros_like, pos)
    return Sampler(pos, z(), z(), z(), jnp.zeros(()), k2)


def rhat(s):
    within = jnp.mean(s.m2.beta / jnp.maximum(s.n - 1, 1), 0)
    between = jnp.var(s.mean.beta, 0, ddof=1)
    return float(jnp.max(jnp.sqrt(1 + between / within)))


def sample(n_steps):
    fac_np, ret_np = make_market()
    fac, ret = jax.device_put(fac_np), jax.device_put(ret_np)
    s = start()
    for _ in range(20):
        s, info = trajectory(s, fac, ret)
    jax.block_until_ready(s)

    began = time.perf_counter()
    for i in range(n_steps):
        s, info = trajectory(s, fac, ret)
        if i % 5000 == 4999:
            print(f"traj {i + 1}  logp {float(info['logp'].mean()):.1f}  rhat {rhat(s):.4f}")
    jax.block_until_ready(s)
    took = time.perf_counter() - began
    print(f"done {n_steps} steps in {took:.4f} s")


if __name__ == "__main__":
    sample(int(sys.argv[1]) if len(sys.argv) > 1 else 300_000)
