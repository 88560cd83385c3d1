"""MAML on chirp regression, with haiku. Tasks differ by amplitude, phase and chirp rate.

    python maml_freq.py [STEPS] [--tasks 32] [--inner-lr 0.05]
"""
import argparse
import time

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax

p = argparse.ArgumentParser()
p.add_argument("steps", type=int, nargs="?", default=60000)
p.add_argument("--tasks", type=int, default=32)
p.add_argument("--shots", type=int, default=16)
p.add_argument("--inner-steps", type=int, default=2)
p.add_argument("--inner-lr", type=float, default=0.05)
p.add_argument("--outer-lr", type=float, default=1e-3)
p.add_argument("--log-every", type=int, default=2000)
p.add_argument("--seed", type=int, default=0)
args = p.parse_args()


def net_fn(x):
    h = x
    for i, w in enumerate((64, 64, 64)):
        h = jax.nn.gelu(hk.Linear(w, name=f"fc{i}")(h))
        h = hk.LayerNorm(-1, True, True, name=f"ln{i}")(h)
    return hk.Linear(1, name="readout")(h)


net = hk.without_apply_rng(hk.transform(net_fn))
outer = optax.chain(optax.clip_by_global_norm(5.0), optax.adamw(args.outer_lr, weight_decay=1e-4))


def chirp(x, amp, phase, rate):
    return amp * jnp.sin(x * (1.0 + rate * x) + phase)


def sample_tasks(key):
    """(tasks, shots, 1) support and query sets, drawn on the device."""
    ka, kp, kr, kx = jax.random.split(key, 4)
    shape = (args.tasks, 1, 1)
    amp = jax.random.uniform(ka, shape, minval=0.2, maxval=4.0)
    phase = jax.random.uniform(kp, shape, minval=0.0, maxval=np.pi)
    rate = jax.random.uniform(kr, shape, minval=0.0, maxval=0.3)
    x = jax.random.uniform(kx, (args.tasks, 2 * args.shots, 1), minval=-4.0, maxval=4.0)
    y = chirp(x, amp, phase, rate)
    n = args.shots
    return (x[:, :n], y[:, :n]), (x[:, n:], y[:, n:])


def mse(params, x, y):
    return jnp.mean((net.apply(params, x) - y) ** 2)


def adapt(params, x, y, inner_lr):
    for _ in range(args.inner_steps):
        g = jax.grad(mse)(params, x, y)
        params = jax.tree.map(lambda w, d: w - inner_lr * d, params, g)
    return params


def meta_objective(params, support, query, inner_lr):
    def per_task(s, q):
        return mse(adapt(params, *s, inner_lr), *q)
    return jnp.mean(jax.vmap(per_task)(support, query))


def apply_outer(params, opt_state, avg, grads):
    updates, opt_state = outer.update(grads, opt_state, params)
    params = optax.apply_updates(params, updates)
    avg = jax.tree.map(lambda a, w: 0.999 * a + 0.001 * w, avg, params)
    return params, opt_state, avg


def meta_step(params, opt_state, avg, key, inner_lr):
    key, sub = jax.random.split(key)
    support, query = sample_tasks(sub)
    loss, grads = jax.value_and_grad(meta_objective)(params, support, query, inner_lr)
    params, opt_state, avg = apply_outer(params, opt_state, avg, grads)
    return params, opt_state, avg, key, loss


step_fn = jax.jit(meta_step, donate_argnums=(0, 1, 2, 3))


@jax.jit
def evaluate(params, key, inner_lr):
    support, query = sample_tasks(key)
    return meta_objective(params, support, query, inner_lr)


def inner_rate(it):
    return args.inner_lr * (0.5 + 0.5 * np.cos(np.pi * min(it, 50000) / 50000))


def main():
    key = jax.random.key(args.seed)
    key, kinit, keval = jax.random.split(key, 3)
    params = net.init(kinit, jnp.zeros((1, 1)))
    opt_state = outer.init(params)
    avg = jax.tree.map(jnp.copy, params)

    for it in range(10):
        params, opt_state, avg, key, loss = step_fn(params, opt_state, avg, key, inner_rate(it))
    evaluate(avg, keval, inner_rate(0)).block_until_ready()
    jax.block_until_ready((params, loss))

    t0 = time.perf_counter()
    for it in range(args.steps):
        params, opt_state, avg, key, loss = step_fn(params, opt_state, avg, key, inner_rate(it))
        if (it + 1) % args.log_every == 0:
            post = evaluate(avg, keval, inner_rate(it))
            print(f"{it + 1}: train {float(loss):.4f}  held-out tasks {float(post):.4f}")
    jax.block_until_ready((params, opt_state, avg))
    dt = time.perf_counter() - t0
    print(f"done {args.steps} steps in {dt:.4f} s")


if __name__ == "__main__":
    main()
