#!/usr/bin/env python
# Sparse variational GP (whitened, Matern-5/2 ARD) for ozone readings of a sensor network.
import argparse
import functools
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular

parser = argparse.ArgumentParser()
parser.add_argument("steps", nargs="?", type=int, default=40000)
parser.add_argument("--inducing", type=int, default=128)
parser.add_argument("--batch", type=int, default=1024)
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--readings", type=int, default=600_000)
parser.add_argument("--eval-every", type=int, default=2000)
args = parser.parse_args()

DIM = 8
JITTER = 1e-3
DTYPE = np.float32


def make_readings(n, seed=0):
    rs = np.random.RandomState(seed)
    x = rs.rand(n, DIM).astype(DTYPE)          # lon, lat, height, hour, day, wind, temp, traffic
    w = rs.randn(DIM, 6).astype(DTYPE)
    y = np.sin(3 * x @ w).sum(1) + 0.3 * rs.standard_t(5, n)
    return x, ((y - y.mean()) / y.std()).astype(DTYPE)


def pairwise(a, b):
    sq = (a * a).sum(1)[:, None] + (b * b).sum(1)[None] - 2 * a @ b.T
    return jnp.sqrt(jnp.maximum(sq, 1e-6))


def matern52(p, a, b):
    scale = jnp.exp(-p["log_ls"])
    r = np.sqrt(5.0).astype(DTYPE) * pairwise(a * scale, b * scale)
    return jnp.exp(p["log_var"]) * (1 + r + r * r / 3) * jnp.exp(-r)


def q_f(p, x):
    m = p["z"].shape[0]
    kuu = matern52(p, p["z"], p["z"]) + JITTER * jnp.eye(m, dtype=DTYPE)
    chol = jnp.linalg.cholesky(kuu)
    a = solve_triangular(chol, matern52(p, p["z"], x), lower=True)
    s = jnp.tril(p["s_chol"])
    mean = a.T @ p["mu"]
    var = jnp.exp(p["log_var"]) - (a * a).sum(0) + ((s.T @ a) ** 2).sum(0)
    return mean, jnp.maximum(var, 1e-6), s


# Student-t likelihood by Gauss-Hermite quadrature
_gh_x, _gh_w = np.polynomial.hermite.hermgauss(12)
GH_X = (_gh_x * np.sqrt(2)).astype(DTYPE)
GH_W = (_gh_w / np.sqrt(np.pi)).astype(DTYPE)
NU = 5.0


def neg_elbo(p, x, y, n_total):
    mean, var, s = q_f(p, x)
    f = mean[:, None] + jnp.sqrt(var)[:, None] * GH_X
    u = (y[:, None] - f) * jnp.exp(-p["log_noise"])
    logp = -0.5 * (NU + 1) * jnp.log1p(u * u / NU) - p["log_noise"]
    ell = (logp @ GH_W).mean()
    diag = jnp.abs(jnp.diag(s)) + 1e-6
    kl = 0.5 * ((s * s).sum() + (p["mu"] ** 2).sum() - s.shape[0]) - jnp.log(diag).sum()
    return -ell + kl / n_total


def adam(p, g, m, v, t):
    m = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, m, g)
    v = jax.tree.map(lambda a, b: 0.999 * a + 0.001 * b * b, v, g)
    c = jnp.sqrt(1 - 0.999 ** t) / (1 - 0.9 ** t)
    p = jax.tree.map(lambda q, a, b: q - args.lr * c * a / (jnp.sqrt(b) + 1e-8), p, m, v)
    return p, m, v


@functools.partial(jax.jit, donate_argnums=0)
def update(state, x_all, y_all):
    p, m, v, t, key = state
    key, sub = jax.random.split(key)
    rows = jax.random.randint(sub, (args.batch,), 0, x_all.shape[0])
    loss, g = jax.value_and_grad(neg_elbo)(p, x_all[rows], y_all[rows], x_all.shape[0])
    t = t + 1
    p, m, v = adam(p, g, m, v, t)
    return (p, m, v, t, key), loss


@jax.jit
def rmse(p, x, y):
    return jnp.sqrt(jnp.mean((q_f(p, x)[0] - y) ** 2))


x, y = make_readings(args.readings)
x_test, y_test = jnp.asarray(x[:2000]), jnp.asarray(y[:2000])
x_train, y_train = jnp.asarray(x[2000:]), jnp.asarray(y[2000:])

params = {
    "z": jnp.asarray(x[2000:2000 + args.inducing]),
    "mu": jnp.zeros(args.inducing, DTYPE),
    "s_chol": jnp.eye(args.inducing, dtype=DTYPE),
    "log_ls": jnp.full(DIM, -0.5, DTYPE),
    "log_var": jnp.zeros((), DTYPE),
    "log_noise": jnp.full((), -0.7, DTYPE),
}
zeros = lambda: jax.tree.map(jnp.zeros_like, params)
state = (params, zeros(), zeros(), jnp.zeros((), DTYPE), jax.random.PRNGKey(1))

for _ in range(10):
    state, loss = update(state, x_train, y_train)
rmse(state[0], x_test, y_test).block_until_ready()
jax.block_until_ready(state)

start = time.time()
for i in range(args.steps):
    state, loss = update(state, x_train, y_train)
    if (i + 1) % args.eval_every == 0:
        print(f"[{i + 1:6d}] -elbo {float(loss):.4f}  test rmse {float(rmse(state[0], x_test, y_test)):.4f}")
jax.block_until_ready(state)
print(f"done {args.steps} steps in {time.time() - start:.4f} s")
