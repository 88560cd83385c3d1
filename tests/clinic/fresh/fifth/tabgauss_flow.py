"""Flow matching on a table of account records (equinox + optax)."""
import argparse
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax


def parse():
    ap = argparse.ArgumentParser()
    ap.add_argument("steps", nargs="?", type=int, default=150_000)
    ap.add_argument("--batch", type=int, default=512)
    ap.add_argument("--width", type=int, default=96)
    ap.add_argument("--depth", type=int, default=3)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--report", type=int, default=30_000)
    return ap.parse_args()


def account_table(rows=40_000, seed=3):
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((rows, 4))
    kind = rng.integers(0, 3, rows)
    cols = [np.exp(0.5 * z[:, 0] + kind), z[:, 1] * z[:, 0], np.abs(z[:, 2]) ** 1.5,
            np.where(kind == 1, z[:, 3], -z[:, 3] + 2), kind == 0, kind == 1, kind == 2,
            np.sin(2 * z[:, 0]) + 0.1 * z[:, 2]]
    x = np.stack(cols, 1).astype(np.float32)
    return (x - x.mean(0)) / (x.std(0) + 1e-6)


class VelocityNet(eqx.Module):
    inp: eqx.nn.Linear
    mid: list
    out: eqx.nn.Linear
    freqs: jax.Array

    def __init__(self, dim, width, depth, *, key):
        k0, k1, *ks = jax.random.split(key, depth + 2)
        self.freqs = 2.0 ** jnp.arange(8)
        self.inp = eqx.nn.Linear(dim + 16, width, key=k0)
        self.mid = [eqx.nn.Linear(width, width, key=k) for k in ks]
        self.out = eqx.nn.Linear(width, dim, key=k1)

    def __call__(self, x, t):
        ang = t * jax.lax.stop_gradient(self.freqs)
        h = jax.nn.silu(self.inp(jnp.concatenate([x, jnp.sin(ang), jnp.cos(ang)])))
        for layer in self.mid:
            h = h + jax.nn.silu(layer(h))
        return self.out(h)


def flow_loss(model, x1, key):
    kn, kt = jax.random.split(key)
    x0 = jax.random.normal(kn, x1.shape)
    t = jax.random.uniform(kt, (x1.shape[0],))
    xt = (1 - t)[:, None] * x0 + t[:, None] * x1
    v = jax.vmap(model)(xt, t)
    return jnp.mean((v - (x1 - x0)) ** 2)


def build_step(opt, batch):
    @eqx.filter_jit(donate="all-except-first")
    def step(table, model, opt_state, key):
        key, kb, kl = jax.random.split(key, 3)
        x1 = table[jax.random.randint(kb, (batch,), 0, table.shape[0])]
        loss, grads = eqx.filter_value_and_grad(flow_loss)(model, x1, kl)
        updates, opt_state = opt.update(grads, opt_state, eqx.filter(model, eqx.is_inexact_array))
        return eqx.apply_updates(model, updates), opt_state, key, loss

    return step


@eqx.filter_jit
def sample(model, key, n, dim, nsteps=20):
    x = jax.random.normal(key, (n, dim))

    def body(x, i):
        t = jnp.full((n,), (i + 0.5) / nsteps)
        return x + jax.vmap(model)(x, t) / nsteps, None

    return jax.lax.scan(body, x, jnp.arange(nsteps))[0]


def run(args):
    table = jnp.asarray(account_table())
    dim = table.shape[1]
    key, km = jax.random.split(jax.random.key(0))
    model = VelocityNet(dim, args.width, args.depth, key=km)
    opt = optax.adamw(optax.cosine_decay_schedule(args.lr, 100_000), weight_decay=1e-4)
    opt_state = opt.init(eqx.filter(model, eqx.is_inexact_array))
    step = build_step(opt, args.batch)

    for _ in range(5):
        model, opt_state, key, loss = step(table, model, opt_state, key)
    jax.block_until_ready(loss)

    begin = time.perf_counter()
    for it in range(1, args.steps + 1):
        model, opt_state, key, loss = step(table, model, opt_state, key)
        if it % args.report == 0:
            gap = jnp.abs(sample(model, jax.random.key(it), 512, dim).std(0) - 1).mean()
            print(f"{it}: loss {float(loss):.4f} std gap {float(gap):.3f}", flush=True)
    jax.block_until_ready((model, loss))
    print(f"done {args.steps} steps in {time.perf_counter() - begin:.4f} s")


if __name__ == "__main__":
    run(parse())
