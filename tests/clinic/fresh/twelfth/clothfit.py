"""Fit the inner forces of a hanging cloth to filmed motion: a differentiable simulator in plain JAX.

The cloth is a grid of nodes joined by structural, shear and bending threads. What is learned is the
tension of every thread (a stiffness for each kind, plus a small network that sees the strains around
a node) and the drag of the air. Rollouts of a few frames start from the film or from states where the
model itself has got to before (the pool); the curriculum lengthens them and mixes in more of the pool.

Fields are (..., 3, cloth, row, column): components first, the grid contiguous.
"""
import functools
import math
import sys
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

REAL = np.float32
ROWS = COLS = 12
SPACING = 0.1                      # m between nodes
HANG = 2.5                         # m, height of the rail
FPS = 100
SUBSTEPS, PAD = 2, 2
DT = 1.0 / (FPS * SUBSTEPS)
BATCH = 16
OFFSETS = ((0, 1), (1, 0), (1, 1), (1, -1), (0, 2), (2, 0))


def thread_mask():
    r, c = np.mgrid[:ROWS, :COLS]
    return np.stack([(r + dr < ROWS) & (c + dc >= 0) & (c + dc < COLS) for dr, dc in OFFSETS])


MASK = thread_mask().astype(REAL)[:, None]                                           # (6, 1, R, C)
REST = np.array([SPACING * math.hypot(*o) for o in OFFSETS], REAL).reshape(6, 1, 1, 1)
FREE = (np.arange(ROWS) > 0).astype(REAL)[:, None]                                   # top row is pinned
GRAVITY = np.array([0.0, 0.0, -1.5], REAL).reshape(3, 1, 1, 1)
TRUE_K = np.array([120, 120, 40, 40, 20, 20], REAL).reshape(6, 1, 1, 1)


class Cloth(NamedTuple):
    x: jax.Array
    v: jax.Array


class Film(NamedTuple):
    x: jax.Array                   # (clips, frames, 3, R, C)
    v: jax.Array
    wind: jax.Array                # (clips, frames, 3)


class Adam(NamedTuple):
    mu: dict
    nu: dict
    t: jax.Array


class State(NamedTuple):
    params: dict
    opt: Adam
    pool: Cloth                    # like the film: where the model was when it came to that frame
    key: jax.Array


class Stage(NamedTuple):
    horizon: int
    drift: float
    lr: float


def halo(q, xp):
    return xp.pad(q, ((0, 0),) * (q.ndim - 2) + ((PAD, PAD), (PAD, PAD)))


def look(q, dr, dc):
    """The grid shifted by (dr, dc), out of a field with a halo."""
    return q[..., PAD + dr:PAD + dr + ROWS, PAD + dc:PAD + dc + COLS]


def threads(x, v, xp):
    """Strain and strain velocity (6, B, R, C) and direction (6, 3, B, R, C) of every thread."""
    hx, hv = halo(x, xp), halo(v, xp)
    d = xp.stack([look(hx, dr, dc) - x for dr, dc in OFFSETS])
    w = xp.stack([look(hv, dr, dc) - v for dr, dc in OFFSETS])
    length = xp.sqrt((d * d).sum(1))
    strain = (length / REST - 1) * MASK
    rate = (d * w).sum(1) / length * MASK
    return strain, rate, d / length[:, None]


def net_pull(tension, along, xp):
    """Sum of the threads' forces on every node; each thread pulls both its ends."""
    pull = (tension * MASK)[:, None] * along
    back = halo(pull, xp)
    return pull.sum(0) - sum(look(back[k], -dr, -dc) for k, (dr, dc) in enumerate(OFFSETS))


def film_cloths(clips, frames, seed):
    """The laboratory: cloths of stiffening threads let go at an angle in gusty air."""
    rng = np.random.default_rng(seed)
    r, c = np.mgrid[:ROWS, :COLS] * SPACING
    tilt = rng.uniform(-0.6, 0.6, (clips, 1, 1))
    x = np.stack([np.broadcast_to(c, (clips, ROWS, COLS)), r * np.sin(tilt),
                  HANG - r * np.cos(tilt)]).astype(REAL)
    v = np.zeros_like(x)
    t = np.arange(frames) / FPS
    gust = np.sin(rng.uniform(1.0, 8.0, (clips, 3, 1)) * t + rng.uniform(0, 6.28, (clips, 3, 1)))
    wind = (rng.normal(0.0, 1.0, (clips, 3, 1)) + 2.0 * gust).astype(REAL)           # (clips, 3, frames)
    film = Film(np.empty((clips, frames, 3, ROWS, COLS), REAL),
                np.empty((clips, frames, 3, ROWS, COLS), REAL),
                np.ascontiguousarray(wind.transpose(0, 2, 1)))
    for f in range(frames):
        film.x[:, f] = x.transpose(1, 0, 2, 3)
        film.v[:, f] = v.transpose(1, 0, 2, 3)
        air = wind[:, :, f].T[:, :, None, None]
        for _ in range(SUBSTEPS):
            strain, rate, along = threads(x, v, np)
            tension = TRUE_K * np.where(strain > 0, strain + 3 * strain * strain * strain, 0.4 * strain)
            a = GRAVITY + 0.6 * (air - v) + net_pull(tension + 1.5 * rate, along, np)
            v = (v + DT * a) * FREE
            x = x + DT * v
    return film


def init_params(key):
    sizes = (24, 32, 32, 6)
    keys = jax.random.split(key, len(sizes) - 1)
    net = [{"w": jax.random.normal(k, (o, i), REAL) / math.sqrt(i), "b": jnp.zeros((o, 1, 1, 1), REAL)}
           for k, i, o in zip(keys, sizes[:-1], sizes[1:])]
    net[-1]["w"] = 0.1 * net[-1]["w"]
    return {"net": net, "log_k": jnp.full((6, 1, 1, 1), math.log(60.0), REAL),
            "log_drag": jnp.full((), math.log(0.2), REAL)}


def around(q):
    """The threads that leave a node and those that come in: (6, B, R, C) -> (12, B, R, C)."""
    hq = halo(q, jnp)
    return jnp.concatenate([q, jnp.stack([look(hq[k], -dr, -dc) for k, (dr, dc) in enumerate(OFFSETS)])])


def acceleration(params, x, v, wind):
    strain, rate, along = threads(x, v, jnp)
    h = jnp.concatenate([5.0 * around(strain), around(rate)])
    for layer in params["net"][:-1]:
        h = jnp.tanh(jnp.tensordot(layer["w"], h, 1) + layer["b"])
    last = params["net"][-1]
    tension = jnp.exp(params["log_k"]) * strain + 20.0 * (jnp.tensordot(last["w"], h, 1) + last["b"])
    drag = jnp.exp(params["log_drag"]) * (wind[:, :, None, None] - v)
    return GRAVITY + drag + net_pull(tension, along, jnp)


def advance(params, cloth, wind):
    v = (cloth.v + DT * acceleration(params, cloth.x, cloth.v, wind)) * FREE
    return Cloth(cloth.x + DT * v, v)


def frame(params, cloth, wind):
    def body(c, _):
        return advance(params, c, wind), None
    return jax.lax.scan(body, cloth, None, length=SUBSTEPS)[0]


def rollout(params, cloth, winds):
    def body(c, wind):
        c = frame(params, c, wind)
        return c, c
    return jax.lax.scan(body, cloth, winds)[1]


def adam(grads, opt, params, lr, b1=0.9, b2=0.99, eps=1e-8):
    norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(grads)))
    grads = jax.tree.map(lambda g: g * jnp.minimum(1.0, 1.0 / (norm + 1e-9)), grads)
    t = opt.t + 1
    mu = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, opt.mu, grads)
    nu = jax.tree.map(lambda n, g: b2 * n + (1 - b2) * g * g, opt.nu, grads)
    scale = lr * jnp.sqrt(1 - b2 ** t) / (1 - b1 ** t)
    params = jax.tree.map(lambda p, m, n: p - scale * m / (jnp.sqrt(n) + eps), params, mu, nu)
    return params, Adam(mu, nu, t)


@functools.partial(jax.jit, static_argnames=("horizon",), donate_argnames=("state",))
def train_step(state, film, drift, lr, horizon):
    key, k_clip, k_at, k_drift = jax.random.split(state.key, 4)
    clips, frames = film.x.shape[:2]
    clip = jax.random.randint(k_clip, (BATCH,), 0, clips)
    at = jax.random.randint(k_at, (BATCH,), 0, frames - horizon)
    window = at[:, None] + jnp.arange(horizon + 1)
    true = Cloth(*(jnp.moveaxis(q[clip[:, None], window], 0, 2) for q in (film.x, film.v)))
    winds = jnp.moveaxis(film.wind[clip[:, None], window[:, :-1]], 0, 2)             # (H, 3, B)
    start = Cloth(true.x[0], true.v[0])
    mixed = jax.random.bernoulli(k_drift, drift, (BATCH, 1, 1))
    start = jax.tree.map(lambda p, s: jnp.where(mixed, jnp.moveaxis(p[clip, at], 0, 1), s), state.pool, start)

    def misfit(params):
        path = rollout(params, start, winds)                                         # (H, 3, B, R, C)
        miss = jax.tree.map(lambda p, t: p - t[1:], path, true)
        loss = jnp.mean(jnp.square(miss.x / SPACING)) + jnp.mean(jnp.square(miss.v))
        return loss, (path, miss)

    (loss, (path, miss)), grads = jax.value_and_grad(misfit, has_aux=True)(state.params)
    params, opt = adam(grads, state.opt, state.params, lr)
    sane = (jnp.abs(miss.x[-1]).max((0, 2, 3)) < 0.5 * SPACING)[:, None, None]
    pool = jax.tree.map(
        lambda q, p, t: q.at[clip, at + horizon].set(jnp.moveaxis(jnp.where(sane, p[-1], t[-1]), 1, 0)),
        state.pool, path, true)
    return State(params, opt, pool, key), loss


@jax.jit
def long_rollout_error(params, film):
    """RMS distance (m) from the film over 40 frames that were not trained on."""
    x, v, wind = (jnp.moveaxis(q[:, 100:141], 0, 2) for q in film)
    path = rollout(params, Cloth(x[0], v[0]), wind[:-1])
    return jnp.sqrt(jnp.mean(jnp.square(path.x - x[1:]).sum(1)))


class Curriculum:
    """Longer rollouts soon; the share of pool starts and the rate are reviewed now and then."""
    REVIEW = 40

    def __init__(self, steps):
        self.steps, self.ramp = steps, steps // 8

    def at(self, k):
        done = (k - k % self.REVIEW) / self.steps
        lr = 3e-3 * (0.02 + 0.49 * (1.0 + math.cos(math.pi * done)))
        return Stage(2 if k < self.ramp else 3, 0.05 + 0.45 * done, lr)


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
    skip = steps // 4
    footage = film_cloths(64, 280, seed=3)
    held = jax.device_put(Film(*(q[:8] for q in footage)))
    film = jax.device_put(Film(*(q[8:] for q in footage)))
    params = init_params(jax.random.PRNGKey(0))
    opt = Adam(jax.tree.map(jnp.zeros_like, params), jax.tree.map(jnp.zeros_like, params), jnp.zeros((), REAL))
    state = State(params, opt, Cloth(jnp.copy(film.x), jnp.copy(film.v)), jax.random.PRNGKey(1))
    plan = Curriculum(steps)
    print(f"untrained: {float(long_rollout_error(state.params, held)):.4f} m after 40 frames", flush=True)

    began = time.perf_counter()
    for k in range(steps):
        if k == skip:
            jax.block_until_ready(state)
            began = time.perf_counter()
        stage = plan.at(k)
        state, loss = train_step(state, film, stage.drift, stage.lr, horizon=stage.horizon)
        if k % 100 == 0:
            print(f"step {k:5d}  horizon {stage.horizon}  drift {stage.drift:.2f}  loss {float(loss):.5f}", flush=True)
        if k % 500 == 499:
            print(f"step {k:5d}  held-out {float(long_rollout_error(state.params, held)):.4f} m", flush=True)
    jax.block_until_ready(state)
    print(f"done {steps - skip} steps in {time.perf_counter() - began:.3f} s", flush=True)


if __name__ == "__main__":
    main()
