"""Deep kernel learning with equinox: the inverse dynamics of a two-link arm as an exact GP on subsets.

A small network maps joint states to a space in which an RBF kernel works. Each step is one dispatch that
scans over a few random subsets and follows the gradient of their marginal likelihoods.

    python gp_arm.py [STEPS]
"""
import math
import sys
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

SUBSET = 384
INNER = 2                 # subsets per dispatch
LATENT = 4
JITTER = 1e-4


# ----------------------------------------------------------------- the arm

def arm_data(n, seed):
    """Joint angles, speeds and accelerations -> torque at the shoulder."""
    rng = np.random.default_rng(seed)
    q = rng.uniform(-math.pi, math.pi, (n, 2))
    dq = rng.normal(0, 1.0, (n, 2))
    ddq = rng.normal(0, 1.0, (n, 2))
    m1, m2, l1, l2, g = 1.0, 0.8, 1.0, 0.7, 9.81
    c2, s2 = np.cos(q[:, 1]), np.sin(q[:, 1])
    inertia = (m1 + m2) * l1 ** 2 + m2 * l2 ** 2 + 2 * m2 * l1 * l2 * c2
    cross = m2 * l2 ** 2 + m2 * l1 * l2 * c2
    tau = inertia * ddq[:, 0] + cross * ddq[:, 1]
    tau -= m2 * l1 * l2 * s2 * (2 * dq[:, 0] * dq[:, 1] + dq[:, 1] ** 2)
    tau += (m1 + m2) * g * l1 * np.cos(q[:, 0]) + m2 * g * l2 * np.cos(q.sum(1))
    x = np.concatenate([np.cos(q), np.sin(q), dq, ddq], 1)
    y = (tau - tau.mean()) / tau.std() + 0.03 * rng.standard_normal(n)
    return x, y


# ----------------------------------------------------------------- model

class DeepKernel(eqx.Module):
    net: eqx.nn.MLP
    log_scale: jax.Array
    log_signal: jax.Array
    log_noise: jax.Array

    def __init__(self, features, key):
        self.net = eqx.nn.MLP(features, LATENT, 64, 3, activation=jnp.tanh, key=key)
        self.log_scale = jnp.zeros(LATENT)
        self.log_signal = jnp.zeros(())
        self.log_noise = jnp.log(jnp.array(0.1))

    def embed(self, x):
        return jax.vmap(self.net)(x) * jnp.exp(-self.log_scale)

    def kernel(self, a, b):
        d2 = jnp.sum(a * a, 1)[:, None] + jnp.sum(b * b, 1)[None] - 2 * a @ b.T
        return jnp.exp(2 * self.log_signal - 0.5 * jnp.maximum(d2, 0.0))

    def factor(self, z):
        k = self.kernel(z, z)
        return jnp.linalg.cholesky(k + (jnp.exp(2 * self.log_noise) + JITTER) * jnp.eye(z.shape[0], dtype=k.dtype))

    def nll(self, x, y):
        chol = self.factor(self.embed(x))
        w = jax.scipy.linalg.solve_triangular(chol, y, lower=True)
        return (0.5 * w @ w + jnp.log(jnp.diagonal(chol)).sum()) / y.shape[0] + 0.919

    def predict(self, x, y, new):
        z, zn = self.embed(x), self.embed(new)
        chol = self.factor(z)
        k = jax.scipy.linalg.solve_triangular(chol, self.kernel(z, zn), lower=True)
        mean = k.T @ jax.scipy.linalg.solve_triangular(chol, y, lower=True)
        var = jnp.exp(2 * self.log_signal) - jnp.sum(k * k, 0) + jnp.exp(2 * self.log_noise)
        return mean, var


@eqx.filter_jit
def held_out(model, x, y, xt, yt):
    mean, var = model.predict(x, y, xt)
    rmse = jnp.sqrt(jnp.mean((mean - yt) ** 2))
    nlpd = 0.5 * jnp.mean(jnp.log(2 * jnp.pi * var) + (mean - yt) ** 2 / var)
    return rmse, nlpd


# ----------------------------------------------------------------- training

def make_optimiser(steps):
    rate = optax.cosine_decay_schedule(3e-3, steps * INNER, 0.05)
    return optax.chain(optax.clip_by_global_norm(5.0), optax.adam(rate))


def make_trainer(optim, static):
    def one_subset(carry, key, x, y):
        params, opt_state = carry
        rows = jax.random.randint(key, (SUBSET,), 0, x.shape[0])

        def objective(p):
            return eqx.combine(p, static).nll(x[rows], y[rows])

        value, grads = jax.value_and_grad(objective)(params)
        updates, opt_state = optim.update(grads, opt_state, params)
        return (optax.apply_updates(params, updates), opt_state), value

    @jax.jit
    def train(params, opt_state, key, x, y):
        keys = jax.random.split(key, INNER + 1)
        (params, opt_state), values = jax.lax.scan(
            lambda c, k: one_subset(c, k, x, y), (params, opt_state), keys[1:])
        return params, opt_state, keys[0], values.mean()

    return train


def main(argv):
    steps = int(argv[1]) if len(argv) > 1 else 7000
    x, y = arm_data(22_000, seed=1)
    x_test, y_test = jnp.asarray(x[20_000:]), jnp.asarray(y[20_000:])
    x, y = jnp.asarray(x[:20_000]), jnp.asarray(y[:20_000])

    model = DeepKernel(x.shape[1], jax.random.PRNGKey(0))
    params, static = eqx.partition(model, eqx.is_inexact_array)
    optim = make_optimiser(steps)
    opt_state = optim.init(params)
    train = make_trainer(optim, static)
    key = jax.random.PRNGKey(1)

    for _ in range(5):
        params, opt_state, key, value = train(params, opt_state, key, x, y)
    jax.block_until_ready(params)
    start = time.perf_counter()
    for step in range(6, steps + 1):
        params, opt_state, key, value = train(params, opt_state, key, x, y)
        if step % 1000 == 0:
            rmse, nlpd = held_out(eqx.combine(params, static), x[:1000], y[:1000], x_test, y_test)
            print(f"{step:6d}  nll {float(value):7.3f}  rmse {float(rmse):.3f}  nlpd {float(nlpd):.3f}", flush=True)
    jax.block_until_ready(params)
    seconds = time.perf_counter() - start
    rmse, nlpd = held_out(eqx.combine(params, static), x[:1000], y[:1000], x_test, y_test)
    print(f"held out rmse {float(rmse):.3f}  nlpd {float(nlpd):.3f}")
    print(f"done {steps - 5} steps in {seconds:.3f} s")


if __name__ == "__main__":
    main(sys.argv)
