# Grey-box identification of a greenhouse climate model from logged data.
# Multiple shooting: short windows out of a long log, initial states measured,
# a small residual net on top of the heat/moisture/CO2 balance.  Plain jnp, own Adam.
import sys
import time
from functools import partial

import numpy as np
import jax
import jax.numpy as jnp

NX, NU, ND = 3, 4, 3          # temp, humidity, co2 | heat, vent, fog, co2 | T_out, RH_out, sun
HID = 48
WIN = 4                       # shooting window, unrolled
NB = 512                      # windows per step
LR, B1, B2, CLIP = 2e-3, 0.9, 0.99, 1.0
DT = 0.1


def balance(phys, x, u, d):
    """Lumped balances; x [..., NX]."""
    k = jnp.exp(phys)
    T, H, C = x[..., 0], x[..., 1], x[..., 2]
    vent = jax.nn.sigmoid(u[..., 1])
    dT = k[0] * u[..., 0] + k[1] * d[..., 2] - (k[2] + k[3] * vent) * (T - d[..., 0])
    dH = k[4] * jax.nn.softplus(u[..., 2]) + k[5] * d[..., 2] - k[6] * vent * (H - d[..., 1])
    dC = k[7] * jax.nn.softplus(u[..., 3]) - k[8] * jax.nn.relu(d[..., 2]) * C - k[9] * vent * C
    return jnp.stack([dT, dH, dC], -1)


def resid(net, x, u, d):
    h = jnp.concatenate([x, u, d], -1)
    h = jnp.tanh(h @ net["w0"] + net["b0"])
    h = jnp.tanh(h @ net["w1"] + net["b1"])
    return h @ net["w2"] + net["b2"]


def init(key):
    k = jax.random.split(key, 3)
    n_in = NX + NU + ND
    net = dict(w0=jax.random.normal(k[0], (n_in, HID)) / n_in ** 0.5, b0=jnp.zeros(HID),
               w1=jax.random.normal(k[1], (HID, HID)) / HID ** 0.5, b1=jnp.zeros(HID),
               w2=jax.random.normal(k[2], (HID, NX)) * 1e-2, b2=jnp.zeros(NX))
    return dict(phys=jnp.full(10, -1.0), net=net, logsig=jnp.zeros(NX))


def make_log(n=40_000, seed=3):
    rng = np.random.default_rng(seed)
    t = np.arange(n) / 240.0
    d = np.stack([np.sin(2 * np.pi * t), np.cos(2 * np.pi * t + 0.4),
                  np.maximum(0, np.sin(2 * np.pi * t - 0.3))], 1)
    d += 0.05 * rng.standard_normal(d.shape)
    u = np.repeat(rng.standard_normal((n // 20 + 1, NU)), 20, 0)[:n]
    x = np.zeros((n, NX))
    A = np.array([-0.6, -0.4, -0.8])
    drive = np.tanh(u[:, [0, 2, 3]]) + 0.5 * d[:, [2, 1, 0]]
    for i in range(n - 1):
        x[i + 1] = x[i] + DT * (A * x[i] + drive[i])
    x += 0.01 * rng.standard_normal(x.shape)
    return [a.astype(np.float32) for a in (x, u, d)]


def loss_fn(p, x, u, d):
    s, tot, per = x[:, 0], p["logsig"].sum() * 0.01, []
    for i in range(WIN):
        mid = s + 0.5 * DT * balance(p["phys"], s, u[:, i], d[:, i])
        s = s + DT * (balance(p["phys"], mid, u[:, i], d[:, i]) + resid(p["net"], s, u[:, i], d[:, i]))
        e = s - x[:, i + 1]
        tot = tot + jnp.mean(e ** 2 * jnp.exp(-p["logsig"]))
        per.append(jnp.sqrt(jnp.mean(e ** 2, 0)))
    return tot / WIN, jnp.stack(per)


def adam(p, g, m, v, t, lr):
    m = jax.tree.map(lambda a, b: B1 * a + (1 - B1) * b, m, g)
    v = jax.tree.map(lambda a, b: B2 * a + (1 - B2) * b * b, v, g)
    c1, c2 = 1 - B1 ** t, 1 - B2 ** t
    p = jax.tree.map(lambda w, a, b: w - lr * (a / c1) / (jnp.sqrt(b / c2) + 1e-8), p, m, v)
    return p, m, v


def clip(g):
    n = jnp.sqrt(sum(jnp.sum(a * a) for a in jax.tree.leaves(g)))
    return jax.tree.map(lambda a: a * jnp.minimum(1.0, CLIP / (n + 1e-9)), g)


def polyak(avg, p, rate=0.995):
    return jax.tree.map(lambda a, b: rate * a + (1 - rate) * b, avg, p)


@partial(jax.jit, donate_argnums=(0,))
def fit_step(st, log, lr):
    X, U, D = log
    key, sub = jax.random.split(st["key"])
    at = jax.random.randint(sub, (NB, 1), 0, X.shape[0] - WIN - 1) + jnp.arange(WIN + 1)
    (loss, per), g = jax.value_and_grad(loss_fn, has_aux=True)(st["p"], X[at], U[at], D[at])
    g = clip(g)
    t = st["t"] + 1
    p, m, v = adam(st["p"], g, st["m"], st["v"], t, lr)
    avg = polyak(st["avg"], p)
    return dict(p=p, m=m, v=v, t=t, key=key, avg=avg), loss, per


def schedule(i):
    return LR / (1.0 + i / 20_000)


def run(steps):
    log = tuple(jnp.asarray(a) for a in make_log())
    p = init(jax.random.PRNGKey(0))
    zeros = lambda: jax.tree.map(jnp.zeros_like, p)
    st = dict(p=p, m=zeros(), v=zeros(), t=jnp.zeros((), jnp.float32),
              key=jax.random.PRNGKey(1), avg=jax.tree.map(jnp.copy, p))
    for i in range(10):
        st, loss, per = fit_step(st, log, schedule(i))
    jax.block_until_ready(st)
    tic = time.perf_counter()
    for i in range(steps):
        st, loss, per = fit_step(st, log, schedule(i))
        if i % 20_000 == 0:
            print(f"[{i}] loss {float(loss):.5f} end-of-window rmse {np.asarray(per)[-1].round(4)}")
    jax.block_until_ready(st)
    toc = time.perf_counter()
    print(f"done {steps} steps in {toc - tic:.4f} s")


if __name__ == "__main__":
    run(int(sys.argv[1]) if len(sys.argv) > 1 else 250_000)
