# Fit a radial pair potential to reference trajectories by differentiating
# through a short velocity-Verlet rollout.  Plain jnp, hand-written Adam.
import sys
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

N_ATOMS = 16
N_BASIS = 8
BATCH = 8
HORIZON = 5
WARM = 10
DT = 0.01
BOX = 4.0
N_FRAMES = 40_000
CENTERS = np.linspace(0.6, 2.4, N_BASIS).astype(np.float32)


def reference_frames(seed=0):
    """Noisy lattice configurations pushed along by a soft repulsion."""
    rng = np.random.default_rng(seed)
    g = np.stack(np.meshgrid(*[np.arange(4)] * 2, indexing="ij"), -1).reshape(-1, 2)
    lattice = np.concatenate([g * 0.95, (g.sum(1, keepdims=True) % 2) * 0.5], 1)
    start = lattice + 0.08 * rng.standard_normal((N_FRAMES, N_ATOMS, 3), dtype=np.float32)
    vel = 0.4 * rng.standard_normal((N_FRAMES, N_ATOMS, 3), dtype=np.float32)
    out = np.empty((N_FRAMES, 3, N_ATOMS, 3), np.float32)
    out[:, 0], out[:, 1] = start, vel
    out[:, 2] = start + HORIZON * DT * vel + 0.002 * (start - lattice)
    return out


def energy(theta, x):
    d = x[:, None, :] - x[None, :, :]
    d = d - BOX * jnp.round(d / BOX)
    r = jnp.sqrt(jnp.sum(d * d, -1) + jnp.eye(N_ATOMS, dtype=d.dtype))
    phi = jnp.exp(-((r[..., None] - CENTERS) / theta["width"]) ** 2)
    pair = phi @ theta["coef"] + theta["wall"] / r**6
    return 0.5 * jnp.sum(pair * (1.0 - jnp.eye(N_ATOMS, dtype=d.dtype)))


force = jax.vmap(lambda th, x: -jax.grad(energy, argnums=1)(th, x), in_axes=(None, 0))


def rollout(theta, x, v):
    def verlet(carry, _):
        x, v, f = carry
        v = v + 0.5 * DT * f
        x = x + DT * v
        f = force(theta, x)
        v = v + 0.5 * DT * f
        return (x, v, f), None

    (x, v, _), _ = jax.lax.scan(verlet, (x, v, force(theta, x)), None, length=HORIZON)
    return x


def loss_fn(theta, frames, noise, key):
    x0, v0, x1 = frames[:, 0], frames[:, 1], frames[:, 2]
    x0 = x0 + noise * jax.random.normal(key, x0.shape, x0.dtype)
    err = rollout(theta, x0, v0) - x1
    return jnp.mean(err**2) / DT**2 + 1e-4 * jnp.sum(theta["coef"] ** 2)


def adam(theta, m, s, g, t, lr):
    m = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, m, g)
    s = jax.tree.map(lambda a, b: 0.999 * a + 0.001 * b * b, s, g)
    c1, c2 = 1 - 0.9**t, 1 - 0.999**t
    theta = jax.tree.map(lambda p, a, b: p - lr * (a / c1) / (jnp.sqrt(b / c2) + 1e-8),
                         theta, m, s)
    return theta, m, s


@partial(jax.jit, donate_argnums=0)
def update(state, frames, noise):
    theta, m, s, t, key = state
    key, k_pick, k_noise = jax.random.split(key, 3)
    pick = jax.random.randint(k_pick, (BATCH,), 0, frames.shape[0])
    loss, g = jax.value_and_grad(loss_fn)(theta, frames[pick], noise, k_noise)
    gnorm = jnp.sqrt(sum(jnp.sum(x * x) for x in jax.tree.leaves(g)))
    g = jax.tree.map(lambda x: x / jnp.maximum(1.0, gnorm), g)
    t = t + 1
    theta, m, s = adam(theta, m, s, g, t, 1e-3)
    return (theta, m, s, t, key), loss


def init_state(seed):
    theta = {
        "coef": jnp.asarray(0.1 * np.cos(CENTERS)),
        "wall": jnp.asarray(np.float32(0.02)),
        "width": jnp.asarray(np.float32(0.4)),
    }
    zeros = lambda: jax.tree.map(jnp.zeros_like, theta)
    return theta, zeros(), zeros(), jnp.zeros((), theta["coef"].dtype), jax.random.key(seed)


def noise_at(it):
    return 0.02 * 0.9995**it + 1e-4


if __name__ == "__main__":
    n_steps = int(sys.argv[1]) if len(sys.argv) > 1 else 150_000
    frames = jnp.asarray(reference_frames())
    state = init_state(7)
    for it in range(WARM):
        state, loss = update(state, frames, noise_at(it))
    jax.block_until_ready(state)

    tic = time.perf_counter()
    for it in range(WARM, WARM + n_steps):
        state, loss = update(state, frames, noise_at(it))
        if it % 200 == 0:
            value = float(loss)      # also keeps the host from running far ahead
            if it % 20_000 == 0:
                print("iter", it, "loss", round(value, 5), flush=True)
    jax.block_until_ready(state)
    toc = time.perf_counter()
    print(f"done {n_steps} steps in {toc - tic:.4f} s")
