"""Deep hedging of a small book of barrier-free calls under Heston-like dynamics.

A recurrent-free policy looks at (log-moneyness, time left, vol, old position) on
every rebalancing date and says how much of the underlying to hold.  The loss is
the optimised certainty equivalent of the terminal P&L with proportional costs.
"""
import sys
import time
from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax


@dataclass(frozen=True)
class Desk:
    paths: int = 512
    dates: int = 20
    maturity: float = 0.25
    kappa: float = 2.0
    theta: float = 0.04
    xi: float = 0.4
    rho: float = -0.6
    cost: float = 1e-3
    lr: float = 2e-3
    width: int = 32
    seed: int = 11
    aversion: tuple = (1.0, 8.0)
    log_every: int = 100


class Policy(eqx.Module):
    layers: list
    head: eqx.nn.Linear
    scale: jax.Array

    def __init__(self, width, key):
        k1, k2, k3, k4 = jax.random.split(key, 4)
        self.layers = [
            eqx.nn.Linear(5, width, key=k1),
            eqx.nn.Linear(width, width, key=k2),
            eqx.nn.Linear(width, width, key=k3),
        ]
        self.head = eqx.nn.Linear(width, 1, key=k4)
        self.scale = jnp.asarray(np.ones(5) * 1.0)

    def __call__(self, x):
        x = x * self.scale
        for lin in self.layers:
            x = jnp.tanh(lin(x))
        return jax.nn.sigmoid(self.head(x)[0])


def bs_delta(logm, tau, vol):
    sd = vol * jnp.sqrt(tau)
    d1 = logm / sd + 0.5 * sd
    return jax.scipy.stats.norm.cdf(d1)


def make_simulator(desk):
    dt = desk.maturity / desk.dates
    sq = float(np.sqrt(dt))

    @jax.jit
    def simulate(key, spot):
        z = jax.random.normal(key, (desk.dates, 2, desk.paths))

        def advance(carry, eps):
            logs, v = carry
            w1 = eps[0]
            w2 = desk.rho * eps[0] + np.sqrt(1 - desk.rho ** 2).item() * eps[1]
            vp = jnp.maximum(v, 1e-4)
            new = logs - 0.5 * vp * dt + jnp.sqrt(vp) * sq * w1
            v = v + desk.kappa * (desk.theta - vp) * dt + desk.xi * jnp.sqrt(vp) * sq * w2
            return (new, v), (logs, jnp.sqrt(vp))

        v0 = jnp.full((desk.paths,), desk.theta, z.dtype)
        start = jnp.log(spot) * jnp.ones((desk.paths,), z.dtype)
        (last, _), (logs, vols) = jax.lax.scan(advance, (start, v0), z)
        return jnp.concatenate([logs, last[None]]), vols

    return simulate


def terminal_pnl(policy, logs, vols, desk):
    spots = jnp.exp(logs)
    left = desk.maturity * (1.0 - jnp.arange(desk.dates) / desk.dates)

    def rebalance(carry, now):
        held, cash = carry
        logm, nxt, s, vol, tau = now
        tau = tau * jnp.ones_like(logm)
        hint = bs_delta(logm, tau, vol)
        feats = jnp.stack([logm * 10, tau * 4, vol * 5, held, hint], axis=-1)
        want = jax.vmap(policy)(feats)
        cash = cash - desk.cost * s * jnp.abs(want - held) + want * (nxt - s)
        return (want, cash), want

    zero = jnp.zeros((desk.paths,), logs.dtype)
    xs = (logs[:-1], spots[1:], spots[:-1], vols, left)
    (_, cash), _ = jax.lax.scan(rebalance, (zero, zero), xs)
    return cash - jnp.maximum(spots[-1] - 1.0, 0.0)


def oce(policy, premium, logs, vols, aversion, desk):
    pnl = terminal_pnl(policy, logs, vols, desk)
    utility = jnp.mean(jnp.exp(-aversion * (pnl + premium)) - 1.0) / aversion
    return premium + utility, pnl.std()


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 6000
    desk = replace(Desk(), seed=11)
    key = jax.random.key(desk.seed)
    key, sub = jax.random.split(key)
    book = (Policy(desk.width, sub), jnp.zeros(()))
    opt = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(desk.lr))
    opt_state = opt.init(eqx.filter(book, eqx.is_inexact_array))
    simulate = make_simulator(desk)

    @eqx.filter_jit(donate="all-except-first")
    def learn(market, book, opt_state, aversion):
        logs, vols = market

        def objective(book):
            return oce(*book, logs, vols, aversion, desk)

        (risk, sd), grads = eqx.filter_value_and_grad(objective, has_aux=True)(book)
        updates, opt_state = opt.update(grads, opt_state, book)
        return eqx.apply_updates(book, updates), opt_state, {"risk": risk, "sd": sd}

    lo, hi = desk.aversion
    keys = iter(jax.random.split(key, steps + 5))
    spots = 1.0 + 0.02 * np.random.default_rng(3).standard_normal(steps + 5)
    warm = 5
    for i in range(steps + warm):
        if i == warm:
            jax.block_until_ready(book)
            t0 = time.perf_counter()
        aversion = lo + (hi - lo) * min(1.0, i / 4000)
        market = simulate(next(keys), np.float32(spots[i]))
        book, opt_state, info = learn(market, book, opt_state, np.float32(aversion))
        if i % desk.log_every == 0:
            print(f"{i:6d} risk {float(info['risk']):.5f} sd {float(info['sd']):.5f} a {aversion:.2f}", flush=True)
    jax.block_until_ready(book)
    print(f"done {steps} steps in {time.perf_counter() - t0:.3f} s")


if __name__ == "__main__":
    main()
