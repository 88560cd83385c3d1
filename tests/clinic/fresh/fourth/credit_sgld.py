#!/usr/bin/env python
# Preconditioned SGLD for a Bayesian logistic regression ("will the loan default?"), a few chains
# side by side, in plain jax.numpy.  The last draws of every chain stay in a ring on the device.
import sys
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

N_ROWS, N_FEATURES, N_CHAINS = 40_000, 64, 16
MINIBATCH = 8192
RING = 4096                 # kept draws
THIN = 1
PRIOR_SCALE = 3.0
ALPHA, EPS = 0.99, 1e-5


class Chain(NamedTuple):
    w: jax.Array            # [C, D]
    v: jax.Array            # [C, D] running second moment of the gradient
    ring: jax.Array         # [RING, C, D]
    loglik: jax.Array       # [C] smoothed minibatch log-likelihood
    key: jax.Array
    t: jax.Array


def make_loans(seed=3):
    rng = np.random.default_rng(seed)
    mix = rng.normal(size=(N_FEATURES, N_FEATURES)) / np.sqrt(N_FEATURES)
    X = rng.normal(size=(N_ROWS, N_FEATURES)) @ (0.5 * mix + np.eye(N_FEATURES))
    X = (X - X.mean(0)) / X.std(0)
    X[:, 0] = 1.0
    w_true = rng.normal(size=N_FEATURES) * (rng.random(N_FEATURES) < 0.4)
    y = rng.random(N_ROWS) < 1 / (1 + np.exp(-X @ w_true))
    return X.astype(np.float32), y.astype(np.float32), w_true


def step_size(t):
    return 2e-3 * (1.0 + t / 2000.0) ** -0.33


def grad_log_posterior(w, xb, yb):
    """Gradient for every chain at once, and the minibatch log-likelihood."""
    z = w @ xb.T                                           # [C, M]
    p = jax.nn.sigmoid(z)
    resid = yb - p
    loglik = jnp.mean(yb * jnp.log(p + 1e-7) + (1 - yb) * jnp.log(1 - p + 1e-7), axis=1)
    grad = (N_ROWS / MINIBATCH) * (resid @ xb) - w / PRIOR_SCALE ** 2
    return grad, loglik


def sgld(chain, X, y):
    key, k_rows, k_noise = jax.random.split(chain.key, 3)
    rows = jax.random.randint(k_rows, (MINIBATCH,), 0, N_ROWS)
    grad, loglik = grad_log_posterior(chain.w, X[rows], y[rows])
    g_bar = grad / N_ROWS
    v = ALPHA * chain.v + (1 - ALPHA) * g_bar ** 2
    G = 1.0 / (EPS + jnp.sqrt(v))
    eps = step_size(chain.t) * 1e-3
    noise = jax.random.normal(k_noise, chain.w.shape) * jnp.sqrt(eps * G / N_ROWS)
    w = chain.w + 0.5 * eps * G * g_bar * 40.0 + noise
    slot = (chain.t // THIN) % RING
    ring = jax.lax.dynamic_update_index_in_dim(chain.ring, w, slot, 0)
    return Chain(w, v, ring, 0.99 * chain.loglik + 0.01 * loglik, key, chain.t + 1)


sgld = jax.jit(sgld, donate_argnums=0)


@jax.jit
def summary(ring, loglik):
    """Mean over the ring, Gelman-Rubin-like ratio, log-likelihood."""
    per_chain = ring.mean(0)
    within = ring.var(0).mean(0)
    return per_chain.mean(0), jnp.sqrt(1 + per_chain.var(0) / (within + 1e-9)).max(), loglik.mean()


def initial(key):
    k1, k2 = jax.random.split(key)
    shape = (N_CHAINS, N_FEATURES)
    return Chain(0.1 * jax.random.normal(k1, shape), jnp.ones(shape), jnp.zeros((RING, *shape)),
                 jnp.zeros(N_CHAINS), k2, jnp.zeros((), jnp.int32))


def run(n_steps):
    X, y, w_true = make_loans()
    X, y = jax.device_put((X, y))
    chain = initial(jax.random.PRNGKey(11))
    for _ in range(20):
        chain = sgld(chain, X, y)
    summary(chain.ring, chain.loglik)
    jax.block_until_ready(chain)
    begin = time.perf_counter()
    for i in range(n_steps):
        chain = sgld(chain, X, y)
        if (i + 1) % 20_000 == 0:
            mean, rhat, ll = jax.device_get(summary(chain.ring, chain.loglik))
            err = np.abs(mean - w_true).mean()
            print(f"draw {i + 1}: |w - w*| {err:.3f}  r-hat {rhat:.2f}  loglik {ll:.4f}", flush=True)
    jax.block_until_ready(chain)
    print(f"done {n_steps} steps in {time.perf_counter() - begin:.4f} s")


if __name__ == "__main__":
    run(int(sys.argv[1]) if len(sys.argv) > 1 else 200_000)
