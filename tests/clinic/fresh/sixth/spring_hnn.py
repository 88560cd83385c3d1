"""Hamiltonian network for a chain of anharmonic springs (equinox)."""
import sys
import time
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax


@dataclass(frozen=True)
class Config:
    masses: int = 4
    samples: int = 40_000
    batch: int = 512
    width: int = 64
    depth: int = 2
    lr: float = 2e-3
    clip: float = 1.0
    warmup: int = 20
    log_every: int = 4000
    seed: int = 3


class Hamiltonian(eqx.Module):
    kinetic: eqx.nn.MLP
    potential: eqx.nn.MLP

    def __init__(self, cfg, key):
        k1, k2 = jax.random.split(key)
        self.kinetic = eqx.nn.MLP(cfg.masses, "scalar", cfg.width, cfg.depth, jax.nn.softplus, key=k1)
        self.potential = eqx.nn.MLP(cfg.masses, "scalar", cfg.width, cfg.depth, jax.nn.softplus, key=k2)

    def __call__(self, z):
        q, p = jnp.split(z, 2)
        return self.kinetic(p) + self.potential(q)

    def flow(self, z):
        dq, dp = jnp.split(jax.grad(self.__call__)(z), 2)
        return jnp.concatenate([dp, -dq])


def simulate(cfg):
    """Random phase-space points of the true chain, with their time derivatives."""
    rng = np.random.default_rng(cfg.seed)
    z = rng.normal(size=(cfg.samples, 2 * cfg.masses)).astype(np.float32)
    q, p = z[:, : cfg.masses], z[:, cfg.masses:]
    ext = np.diff(np.pad(q, ((0, 0), (1, 1))), axis=1)
    tension = ext + 0.3 * ext ** 3
    force = tension[:, 1:] - tension[:, :-1]
    dz = np.concatenate([p, force], axis=1).astype(np.float32)
    return z, dz


def main():
    cfg = Config()
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 120_000
    z_np, dz_np = simulate(cfg)
    z_all, dz_all = jnp.asarray(z_np), jnp.asarray(dz_np)

    key = jax.random.key(cfg.seed)
    model = Hamiltonian(cfg, key)
    params, static = eqx.partition(model, eqx.is_inexact_array)
    tx = optax.chain(
        optax.clip_by_global_norm(cfg.clip),
        optax.adamw(cfg.lr, weight_decay=1e-5),
    )
    opt_state = tx.init(params)

    def loss_fn(params, z, dz):
        net = eqx.combine(params, static)
        resid = jnp.sum((jax.vmap(net.flow)(z) - dz) ** 2, axis=-1)
        return resid.mean(), resid

    def train_step(params, opt_state, key, z_all, dz_all):
        key, sub = jax.random.split(key)
        idx = jax.random.randint(sub, (cfg.batch,), 0, cfg.samples)
        (loss, resid), grads = jax.value_and_grad(loss_fn, has_aux=True)(
            params, z_all[idx], dz_all[idx])
        updates, opt_state = tx.update(grads, opt_state, params)
        params = optax.apply_updates(params, updates)
        worst, where = jax.lax.top_k(resid, 64)
        return params, opt_state, key, {"loss": loss, "worst": worst, "worst_id": idx[where]}

    train_step = jax.jit(train_step, donate_argnums=(0, 1, 2))

    hard = {}  # sample id -> last residual, looked at now and then
    metrics = None
    t0 = None
    for it in range(cfg.warmup + steps):
        if it == cfg.warmup:
            jax.block_until_ready(params)
            t0 = time.perf_counter()
        params, opt_state, key, metrics = train_step(params, opt_state, key, z_all, dz_all)
        if it % cfg.log_every == cfg.log_every - 1:
            hard.update(zip(np.asarray(metrics["worst_id"]).tolist(),
                            np.asarray(metrics["worst"]).tolist()))
            print(f"it {it + 1} loss {float(metrics['loss']):.4f} hard {len(hard)}")
    jax.block_until_ready(params)
    seconds = time.perf_counter() - t0
    print(f"done {steps} steps in {seconds:.4f} s")


if __name__ == "__main__":
    main()
