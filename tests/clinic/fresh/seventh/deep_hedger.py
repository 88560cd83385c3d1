"""Deep hedging of a down-and-out call under Heston dynamics (flax.nnx, trainer class).

The paths are simulated inside the jitted update, so there is no input pipeline at all.
usage: python deep_hedger.py [STEPS]
"""
import os
import sys
import time
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import optax
from flax import nnx


@dataclass(frozen=True)
class MarketConfig:
    s0: float = 100.0
    strike: float = 102.0
    barrier: float = 82.0
    v0: float = 0.04
    kappa: float = 1.8
    theta: float = 0.04
    xi: float = 0.5
    rho: float = -0.7
    cost: float = 5e-4
    maturity: float = 30 / 365
    rebalances: int = 20
    paths: int = 1024


class Hedger(nnx.Module):
    """delta_t = f(log-moneyness, variance, time left, previous delta)"""

    def __init__(self, width: int, *, rngs: nnx.Rngs):
        self.inp = nnx.Linear(4, width, rngs=rngs)
        self.mid = nnx.Linear(width, width, rngs=rngs)
        self.out = nnx.Linear(width, 1, rngs=rngs)

    def __call__(self, feats):
        h = jnp.tanh(self.inp(feats))
        h = h + jnp.tanh(self.mid(h))
        return jax.nn.sigmoid(self.out(h))[..., 0]


def heston(key, cfg: MarketConfig):
    """Full-truncation Euler; returns spots and variances, each (time + 1, paths)."""
    dt = cfg.maturity / cfg.rebalances
    z = jax.random.normal(key, (cfg.rebalances, 2, cfg.paths))

    def euler(carry, eps):
        logs, v = carry
        vp = jnp.maximum(v, 0.0)
        dw_v = eps[0] * jnp.sqrt(dt)
        dw_s = cfg.rho * dw_v + jnp.sqrt((1 - cfg.rho**2) * dt) * eps[1]
        logs = logs - 0.5 * vp * dt + jnp.sqrt(vp) * dw_s
        v = v + cfg.kappa * (cfg.theta - vp) * dt + cfg.xi * jnp.sqrt(vp) * dw_v
        return (logs, v), (logs, v)

    start = (jnp.full(cfg.paths, jnp.log(cfg.s0)), jnp.full(cfg.paths, cfg.v0))
    _, (logs, v) = jax.lax.scan(euler, start, z)
    logs = jnp.concatenate([start[0][None], logs])
    v = jnp.concatenate([start[1][None], v])
    return jnp.exp(logs), jnp.maximum(v, 0.0)


def hedging_pnl(model, key, strike, cfg: MarketConfig):
    spot, var = heston(key, cfg)
    left = 1.0 - jnp.arange(cfg.rebalances) / cfg.rebalances

    def rebalance(carry, xs):
        delta, wealth = carry
        s, s_next, v, tau = xs
        feats = jnp.stack([10 * jnp.log(s / strike), 5 * jnp.sqrt(v), jnp.full_like(s, tau), delta], -1)
        new = model(feats)
        wealth = wealth + new * (s_next - s) - cfg.cost * s * jnp.abs(new - delta)
        return (new, wealth), None

    zero = jnp.zeros_like(spot[0])
    (_, wealth), _ = jax.lax.scan(rebalance, (zero, zero), (spot[:-1], spot[1:], var[:-1], left))
    alive = jax.nn.sigmoid(4.0 * (spot.min(0) - cfg.barrier))
    payoff = jnp.maximum(spot[-1] - strike, 0.0) * alive
    return wealth - payoff


class HedgeTrainer:
    def __init__(self, cfg: MarketConfig, seed: int = 7):
        self.cfg = cfg
        model = Hedger(48, rngs=nnx.Rngs(seed))
        tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3))
        optimizer = nnx.Optimizer(model, tx, wrt=nnx.Param)
        self.graphdef, self.state = nnx.split((model, optimizer))
        self.key = jax.random.key(seed)
        self.loss = None
        self._update = jax.jit(self._update_impl, donate_argnums=(0,))

    def _update_impl(self, state, key, t, strike):
        model, optimizer = nnx.merge(self.graphdef, state)
        key = jax.random.fold_in(key, t)

        def entropic_risk(m):
            pnl = hedging_pnl(m, key, strike, self.cfg)
            lam = 0.8
            return (jax.nn.logsumexp(-lam * pnl) - jnp.log(pnl.shape[0])) / lam

        risk, grads = nnx.value_and_grad(entropic_risk)(model)
        optimizer.update(model, grads)
        return nnx.state((model, optimizer)), risk

    def strike_at(self, t: int) -> float:
        # slow curriculum around the target strike
        return self.cfg.strike + 3.0 * ((t * 0.618) % 1.0 - 0.5)

    def step(self, t: int):
        self.state, self.loss = self._update(self.state, self.key, t, self.strike_at(t))

    def fit(self, steps: int, warmup: int = 5):
        for t in range(warmup):
            self.step(t)
        jax.block_until_ready(self.state)
        began = time.perf_counter()
        for t in range(warmup, warmup + steps):
            self.step(t)
            if t % 500 == 0:
                print(f"step {t}: entropic risk {float(self.loss):.4f}", flush=True)
        jax.block_until_ready(self.state)
        return time.perf_counter() - began


if __name__ == "__main__":
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 20000
    seconds = HedgeTrainer(MarketConfig()).fit(n)
    print(f"done {n} steps in {seconds:.4f} s")
