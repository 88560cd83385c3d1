"""Neural ODE in plain jax: learn the friction of a driven pendulum from trajectories."""
import sys
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

N_TRAJ = 2048
BATCH = 128
T_STEPS = 40
DT = 0.05
WIDTH = 64
LR = 1e-3

# measured drive torque, on a regular grid in time
GRID_T = np.linspace(0.0, T_STEPS * DT + DT, 64).astype(np.float32)
GRID_U = (np.sin(3.0 * GRID_T) + 0.5 * np.sin(7.0 * GRID_T + 1.0)).astype(np.float32)


def drive(t):
    pos = t / GRID_T[1]
    i = jnp.floor(pos).astype(jnp.int32)
    u = jnp.asarray(GRID_U)
    return u[i] + (pos - i) * (u[i + 1] - u[i])


def rk4(field, y, t):
    k1 = field(y, t)
    k2 = field(y + 0.5 * DT * k1, t + 0.5 * DT)
    k3 = field(y + 0.5 * DT * k2, t + 0.5 * DT)
    k4 = field(y + DT * k3, t + DT)
    return y + DT / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)


def integrate(field, y0):
    def body(y, i):
        y = rk4(field, y, i * DT)
        return y, y

    _, ys = jax.lax.scan(body, y0, jnp.arange(T_STEPS, dtype=jnp.float32))
    return ys


def true_field(y, t):
    angle, speed = y[..., 0], y[..., 1]
    friction = 0.3 * speed + 0.2 * jnp.tanh(4.0 * speed) + 0.05 * speed ** 3
    return jnp.stack([speed, -4.0 * jnp.sin(angle) - friction + drive(t)], -1)


def friction_net(params, y):
    """One hidden layer on the speed: a sum of soft steps."""
    z = y[..., 1:] * params["slope"] + params["shift"]
    return jnp.sum(jax.scipy.special.erf(z) * params["height"], -1)


def learned_field(params, y, t):
    acc = -4.0 * jnp.sin(y[..., 0]) - friction_net(params, y) + drive(t)
    return jnp.stack([y[..., 1], acc], -1)


def init_params(key):
    keys = jax.random.split(key, 3)
    return {"slope": 2.0 * jax.random.normal(keys[0], (WIDTH,)),
            "shift": jax.random.normal(keys[1], (WIDTH,)),
            "height": 0.1 * jax.random.normal(keys[2], (WIDTH,))}


def init_state(key):
    params = init_params(key)
    zeros = jax.tree.map(jnp.zeros_like, params)
    return params, zeros, jax.tree.map(jnp.copy, zeros), jnp.zeros(())


def loss_fn(params, y0, observed):
    path = integrate(lambda y, t: learned_field(params, y, t), y0)
    return jnp.mean((path - observed.transpose(1, 0, 2)) ** 2)


def adam(params, grads, m, v, count):
    count = count + 1
    m = jax.tree.map(lambda a, g: 0.9 * a + 0.1 * g, m, grads)
    v = jax.tree.map(lambda a, g: 0.999 * a + 0.001 * g * g, v, grads)
    scale = LR * jnp.sqrt(1 - 0.999 ** count) / (1 - 0.9 ** count)
    params = jax.tree.map(lambda p, a, b: p - scale * a / (jnp.sqrt(b) + 1e-8), params, m, v)
    return params, m, v, count


@partial(jax.jit, donate_argnums=0)
def train_step(state, y0, observed):
    params, m, v, count = state
    loss, grads = jax.value_and_grad(loss_fn)(params, y0, observed)
    return adam(params, grads, m, v, count), loss


def main(steps):
    rng = np.random.default_rng(0)
    y0 = rng.normal(0.0, 1.0, (N_TRAJ, 2))
    paths = np.asarray(jax.jit(partial(integrate, true_field))(y0)).transpose(1, 0, 2)
    paths = paths + rng.normal(0.0, 0.01, paths.shape)
    batches = [(jnp.asarray(y0[i:i + BATCH]), jnp.asarray(paths[i:i + BATCH]))
               for i in range(0, N_TRAJ, BATCH)]
    state = init_state(jax.random.key(0))

    for step in range(steps + 3):
        if step == 3:
            jax.block_until_ready(state)
            start = time.perf_counter()
        y_start, observed = batches[step % len(batches)]
        state, loss = train_step(state, y_start, observed)
        if step % 500 == 0:
            print(f"step {step} loss {float(loss):.6f}", flush=True)
    jax.block_until_ready(state)
    print(f"done {steps} steps in {time.perf_counter() - start:.3f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 8000)
