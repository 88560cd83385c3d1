"""A neural controller for the forced Burgers equation, trained through the solver."""
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

GRID = 96
DX = 2 * np.pi / GRID
DT = 0.01
HORIZON = 24
SUBSTEPS = 2
ROLLOUTS = 128
SENSORS = 12
ACTUATORS = 6
HIDDEN = 32
POOL = 16
SKIP = 5


def initial_fields(key, n):
    """Random periodic fields of a few Fourier modes."""
    modes = jnp.arange(1, 6, dtype=jnp.float32)
    x = jnp.arange(GRID) * DX
    amp, phase = jax.random.normal(key, (2, n, 5), jnp.float32)
    waves = jnp.sin(modes[None, :, None] * x[None, None] + 3.0 * phase[..., None])
    return jnp.sum(amp[..., None] / modes[None, :, None] * waves, axis=1)


def actuator_shapes():
    x = np.arange(GRID) * DX
    centres = np.arange(ACTUATORS) * 2 * np.pi / ACTUATORS
    gap = np.angle(np.exp(1j * (x[None] - centres[:, None])))
    return jnp.asarray(np.exp(-(gap**2) / 0.18), jnp.float32)


SHAPES = actuator_shapes()


def init_controller(key):
    k1, k2, k3 = jax.random.split(key, 3)
    return {
        "w1": jax.random.normal(k1, (SENSORS, HIDDEN)) / np.sqrt(SENSORS),
        "b1": jnp.zeros(HIDDEN),
        "w2": jax.random.normal(k2, (HIDDEN, HIDDEN)) / np.sqrt(HIDDEN),
        "b2": jnp.zeros(HIDDEN),
        "w3": 0.01 * jax.random.normal(k3, (HIDDEN, ACTUATORS)),
    }


def controller(params, u):
    obs = u[:, :: GRID // SENSORS]
    h = jnp.tanh(obs @ params["w1"] + params["b1"])
    h = jnp.tanh(h @ params["w2"] + params["b2"])
    return h @ params["w3"]


def rhs(u, force, nu):
    left, right = jnp.roll(u, 1, axis=-1), jnp.roll(u, -1, axis=-1)
    flux = (right**2 - left**2) / (4 * DX)
    return -flux + nu * (right - 2 * u + left) / DX**2 + force


def solver_step(params, u, nu):
    action = controller(params, u)
    force = action @ SHAPES
    for _ in range(SUBSTEPS):
        mid = u + 0.5 * DT * rhs(u, force, nu)
        u = u + DT * rhs(mid, force, nu)
    cost = jnp.mean(u**2) + 1e-3 * jnp.mean(action**2)
    return u, cost


def rollout_cost(params, u0, nu):
    def body(u, _):
        return solver_step(params, u, nu)

    _, costs = jax.lax.scan(body, u0, None, length=HORIZON)
    return jnp.mean(costs)


optimiser = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(3e-3))


def make_update():
    def update(carry, u0, nu):
        params, opt = carry
        cost, grads = jax.value_and_grad(rollout_cost)(params, u0, nu)
        delta, opt = optimiser.update(grads, opt, params)
        return (optax.apply_updates(params, delta), opt), cost

    return jax.jit(update, donate_argnums=(0,))


def viscosity(step):
    """Annealed from easy (thick) to hard (thin), by plateaus."""
    level = (step // 4) / 400.0
    return 0.04 + 0.06 * float(np.exp(-level))


make_fields = jax.jit(initial_fields, static_argnums=1)


def field_pool(key):
    """A pool of start batches, drawn anew now and then."""
    return [make_fields(k, ROLLOUTS) for k in jax.random.split(key, POOL)]


def train(steps):
    step_fn = make_update()
    key = jax.random.PRNGKey(4)
    params = init_controller(jax.random.PRNGKey(0))
    carry = (params, optimiser.init(params))
    pool = field_pool(key)
    uncontrolled = None
    for n in range(steps):
        if n == SKIP:
            jax.block_until_ready(carry)
            start = time.perf_counter()
        if n and n % 500 == 0:
            key, sub = jax.random.split(key)
            pool = field_pool(sub)
        carry, cost = step_fn(carry, pool[n % POOL], viscosity(n))
        if uncontrolled is None:
            uncontrolled = float(cost)
        if n % 50 == 0:
            print(f"update {n}: cost {float(cost):.4f} (first {uncontrolled:.4f})", flush=True)
    jax.block_until_ready(carry)
    return time.perf_counter() - start


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 6000
    wall = train(steps)
    print(f"done {steps - SKIP} steps in {wall:.3f} s", flush=True)


if __name__ == "__main__":
    main()
