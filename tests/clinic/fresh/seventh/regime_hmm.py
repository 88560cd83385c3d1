# Markov-switching Student-t model of order-flow returns, fitted by stochastic gradients on the
# exact marginal likelihood (scaled forward recursion) of random windows.  Plain jax.numpy.
# usage: python regime_hmm.py [STEPS]
import sys
import time
from collections import deque
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

K = 5          # regimes
WINDOW = 48    # ticks in a window
BATCH = 256    # windows in a step
D = 3          # return, imbalance, spread
TICKS = 3_000_000


class Adam(NamedTuple):
    m: dict
    v: dict
    n: jax.Array


def tape(seed=21):
    """A long record with persistent regimes."""
    rng = np.random.default_rng(seed)
    runs = rng.geometric(1 / 60, TICKS // 50)
    regime = np.repeat(rng.integers(0, K, len(runs)), runs)[:TICKS]
    mu = rng.normal(0, 0.6, (K, D))
    sd = np.exp(rng.normal(-0.5, 0.7, (K, D)))
    noise = rng.standard_normal((len(regime), D), dtype=np.float32)
    return (mu[regime] + sd[regime] * noise).astype(np.float32)


def init(key):
    a, b = jax.random.split(key)
    return {
        "mu": 0.5 * jax.random.normal(a, (K, D)),
        "logsd": 0.1 * jax.random.normal(b, (K, D)),
        "lognu": jnp.full((K, D), 2.0),
        "trans": 2.5 * jnp.eye(K),
        "start": jnp.zeros(K),
    }


def log_emission(p, x):
    nu = 2.0 + jnp.exp(p["lognu"])
    z = (x[..., None, :] - p["mu"]) * jnp.exp(-p["logsd"])
    norm = gammaln((nu + 1) / 2) - gammaln(nu / 2) - 0.5 * jnp.log(nu * jnp.pi) - p["logsd"]
    return (norm - (nu + 1) / 2 * jnp.log1p(z * z / nu)).sum(-1)


def forward(p, x):
    """x (batch, time, D) -> mean log-likelihood per tick, last filtered regime probabilities."""
    le = jnp.moveaxis(log_emission(p, x), 1, 0)
    peak = le.max(-1, keepdims=True)
    e = jnp.exp(le - peak)
    A = jax.nn.softmax(p["trans"], -1)

    def tick(alpha, e_t):
        alpha = (alpha @ A) * e_t
        c = alpha.sum(-1, keepdims=True)
        alpha = alpha / c
        return alpha, (jnp.log(c[:, 0]), alpha)

    first = jnp.broadcast_to(jax.nn.softmax(p["start"]), (x.shape[0], K))
    _, (logc, filtered) = jax.lax.scan(tick, first, e, unroll=4)
    return (logc.mean() + peak.mean()), filtered


def adam(p, g, s, lr=3e-3, b1=0.9, b2=0.99):
    n = s.n + 1
    m = jax.tree.map(lambda a, b: b1 * a + (1 - b1) * b, s.m, g)
    v = jax.tree.map(lambda a, b: b2 * a + (1 - b2) * b * b, s.v, g)
    h = lr * jnp.sqrt(1 - b2**n) / (1 - b1**n)
    p = jax.tree.map(lambda a, mm, vv: a - h * mm / (jnp.sqrt(vv) + 1e-8), p, m, v)
    return p, Adam(m, v, n)


def windows(series, key):
    at = jax.random.randint(key, (BATCH,), 0, series.shape[0] - WINDOW)
    return series[at[:, None] + jnp.arange(WINDOW)]


def negloglik(p, x):
    ll, filtered = forward(p, x)
    sticky = 1e-3 * jnp.square(p["trans"]).mean()
    return -ll + sticky, filtered


def fit_step(p, s, series, key):
    key = jax.random.fold_in(key, s.n)
    (nll, filtered), g = jax.value_and_grad(negloglik, has_aux=True)(p, windows(series, key))
    p, s = adam(p, g, s)
    return p, s, nll, filtered


def run(steps):
    series = jnp.asarray(tape())
    step = jax.jit(fit_step, donate_argnums=(0, 1))
    key = jax.random.key(8)
    p = init(key)
    s = Adam(jax.tree.map(jnp.zeros_like, p), jax.tree.map(jnp.zeros_like, p), jnp.int32(0))
    recent = deque(maxlen=16)

    for _ in range(20):
        p, s, nll, filtered = step(p, s, series, key)
    jax.block_until_ready(p)
    clock = time.perf_counter()
    for i in range(steps):
        p, s, nll, filtered = step(p, s, series, key)
        recent.append(filtered)
        if (i + 1) % 10000 == 0:
            use = np.mean([np.asarray(f).mean((0, 1)) for f in recent], 0)
            print(i + 1, f"nll/tick {float(nll):.4f}", "use", use.round(2), flush=True)
    jax.block_until_ready((p, s))
    clock = time.perf_counter() - clock
    print(f"done {steps} steps in {clock:.4f} s")


if __name__ == "__main__":
    run(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
