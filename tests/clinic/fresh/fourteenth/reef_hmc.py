"""Many-chain HMC for the reef transects: coral colonies per site and year.

    y[s, t] ~ NegBinomial(mean = exp(eta[s, t]), concentration = phi)
    eta     = mu + site[s] + trend[s] * time[t] + year[t] + X[s, t] @ beta

Random effects are non-centred; the chains share a dual-averaged step size and
a pooled diagonal metric.   usage: python reef_hmc.py [STEPS]
"""
import sys
import time
from collections import namedtuple
from functools import partial
from typing import Callable, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree_util as jtu
from jax.flatten_util import ravel_pytree

DTYPE = np.float32
N_CHAINS = 64
N_SITES, N_YEARS, N_COV = 48, 16, 3
N_LEAPFROG = 10
TARGET_ACCEPT = 0.8
SWEEP, REPORT_EVERY = 10, 200    # a sweep shares one step-size jitter
WARM = 8                         # untimed transitions

# counts [S, T], covs [K, S, T] (heat stress, turbidity, starfish), time [T] in decades,
# the distinct counts [L] and how often each occurs [L]
Survey = namedtuple("Survey", "counts covs time levels level_n")


def simulate_survey(seed: int) -> Survey:
    rng = np.random.default_rng(seed)
    time_ = (np.arange(N_YEARS) - (N_YEARS - 1) / 2) / 10
    covs = rng.normal(size=(N_COV, N_SITES, N_YEARS))
    covs[0] = np.maximum(covs[0] + rng.normal(size=N_YEARS), 0)
    eta = (3.6 + 0.5 * rng.normal(size=(N_SITES, 1))
           + (0.25 * rng.normal(size=(N_SITES, 1)) - 0.2) * time_
           + 0.2 * rng.normal(size=N_YEARS)
           + np.tensordot(np.array([-0.30, -0.10, -0.15]), covs, 1))
    counts = rng.poisson(rng.gamma(6.0, np.exp(eta) / 6.0))
    levels, level_n = np.unique(counts, return_counts=True)
    return Survey(*(jnp.asarray(a, DTYPE) for a in (counts, covs, time_, levels, level_n)))


class Params(NamedTuple):
    mu: jax.Array
    beta: jax.Array
    log_scales: jax.Array   # site, trend, year
    log_phi: jax.Array
    site: jax.Array
    trend: jax.Array
    year: jax.Array


def stirling(x):
    """log Gamma to float32 accuracy for x > 0: the series, three steps up."""
    z = x + 3.0
    return (z - 0.5) * jnp.log(z) - z + 0.9189385 + (1 / 12 - 1 / (360 * z * z)) / z - jnp.log(x * (x + 1) * (x + 2))


def make_logdensity(survey: Survey) -> Callable:
    n_obs = survey.counts.size

    def logdensity(p: Params):
        s_site, s_trend, s_year = jnp.exp(p.log_scales)
        eta = (p.mu + (s_site * p.site)[:, None] + s_year * p.year
               + (s_trend * p.trend)[:, None] * survey.time
               + jnp.tensordot(p.beta, survey.covs, 1))
        phi = jnp.exp(p.log_phi)
        loglik = n_obs * phi * p.log_phi + jnp.sum(
            survey.counts * eta - (survey.counts + phi) * jnp.logaddexp(eta, p.log_phi))
        # phi is common to all sites, so the gammas are needed once per count
        loglik += jnp.dot(survey.level_n, stirling(survey.levels + phi) - stirling(phi))
        z = (0.5 * (p.mu - 3.0), p.log_phi - 1.5, p.log_scales + 1.0, p.beta, p.site, p.trend, p.year)
        return loglik - 0.5 * sum(jnp.sum(jnp.square(a)) for a in z)

    return logdensity


def initial_position(key) -> Params:
    centre = Params(3.3, np.zeros(N_COV), np.full(3, -1.0), 1.3, np.zeros(N_SITES), np.zeros(N_SITES), np.zeros(N_YEARS))
    flat, unravel = ravel_pytree(jtu.tree_map(lambda c: jnp.asarray(c, DTYPE), centre))
    return jax.vmap(unravel)(flat + 0.1 * jax.random.normal(key, (N_CHAINS, flat.size), DTYPE))

DualAveraging = namedtuple("DualAveraging", "log_eps log_eps_bar h_bar mu count")
Moments = namedtuple("Moments", "n mean m2")
Info = namedtuple("Info", "accept energy diverging")      # each [C]


class HMCState(NamedTuple):
    position: Params
    logdensity: jax.Array
    grad: Params


class SamplerState(NamedTuple):
    key: jax.Array
    hmc: HMCState
    da: DualAveraging
    moments: Moments
    divergences: jax.Array
    energy_trace: jax.Array   # [STEPS, C]
    row: jax.Array


def da_init(eps: float) -> DualAveraging:
    return DualAveraging(*(jnp.asarray(v, DTYPE) for v in (np.log(eps), 0.0, 0.0, np.log(10 * eps), 0.0)))


def da_update(da: DualAveraging, accept, gamma=0.05, t0=10.0, kappa=0.75) -> DualAveraging:
    t = da.count + 1.0
    w = 1.0 / (t + t0)
    h_bar = (1.0 - w) * da.h_bar + w * (TARGET_ACCEPT - accept)
    log_eps = da.mu - jnp.sqrt(t) / gamma * h_bar
    bar = da.log_eps_bar + t ** -kappa * (log_eps - da.log_eps_bar)
    return DualAveraging(log_eps, bar, h_bar, da.mu, t)


def moments_update(m: Moments, x: Params) -> Moments:
    n = m.n + 1.0
    mean = jtu.tree_map(lambda mu, v: mu + (v - mu) / n, m.mean, x)
    m2 = jtu.tree_map(lambda s, v, old, new: s + (v - old) * (v - new), m.m2, x, m.mean, mean)
    return Moments(n, mean, m2)


def fresh_moments(position: Params) -> Moments:
    zeros = partial(jtu.tree_map, jnp.zeros_like)
    return Moments(jnp.zeros((), DTYPE), zeros(position), zeros(position))


def build_transition(logdensity: Callable) -> Callable:
    value_and_grad = jax.vmap(jax.value_and_grad(logdensity))

    @partial(jax.vmap, in_axes=(0, None))
    def kinetic(momentum, inv_mass):
        return 0.5 * jtu.tree_reduce(jnp.add, jtu.tree_map(lambda r, v: jnp.sum(v * r * r), momentum, inv_mass))

    def draw_momentum(key, inv_mass):
        flat, unravel = ravel_pytree(inv_mass)
        return jax.vmap(unravel)(jax.random.normal(key, (N_CHAINS, flat.size), DTYPE) / jnp.sqrt(flat))

    def leapfrog(_, carry, eps, inv_mass):
        state, r = carry
        r = jtu.tree_map(lambda r, g: r + 0.5 * eps * g, r, state.grad)
        q = jtu.tree_map(lambda q, r, v: q + eps * v * r, state.position, r, inv_mass)
        state = HMCState(q, *value_and_grad(q))
        return state, jtu.tree_map(lambda r, g: r + 0.5 * eps * g, r, state.grad)

    @partial(jax.jit, donate_argnums=(0,))
    def transition(state: SamplerState, inv_mass: Params, jitter, adapting):
        key, k_mom, k_acc = jax.random.split(state.key, 3)
        eps = jitter * jnp.exp(jnp.where(adapting, state.da.log_eps, state.da.log_eps_bar))
        r0 = draw_momentum(k_mom, inv_mass)
        h0 = kinetic(r0, inv_mass) - state.hmc.logdensity
        step = partial(leapfrog, eps=eps, inv_mass=inv_mass)
        proposal, r1 = jax.lax.fori_loop(0, N_LEAPFROG, step, (state.hmc, r0))
        delta = h0 - (kinetic(r1, inv_mass) - proposal.logdensity)
        delta = jnp.where(jnp.isnan(delta), -jnp.inf, delta)
        accept = jnp.exp(jnp.minimum(delta, 0.0))
        take = jax.random.uniform(k_acc, (N_CHAINS,), DTYPE) < accept
        select = jax.vmap(lambda t, new, old: jtu.tree_map(partial(jnp.where, t), new, old))
        hmc = select(take, proposal, state.hmc)
        da = jtu.tree_map(partial(jnp.where, adapting), da_update(state.da, accept.mean()), state.da)
        info = Info(accept, h0, delta < -1000.0)
        trace = jax.lax.dynamic_update_index_in_dim(state.energy_trace, h0, state.row, 0)
        return SamplerState(key, hmc, da, moments_update(state.moments, hmc.position),
                            state.divergences + info.diverging, trace, state.row + 1), info

    return transition


@jax.jit
def pooled_metric(position: Params) -> Params:
    return jtu.tree_map(lambda x: 0.9 * jnp.var(x, axis=0) + 1e-3, position)


@jax.jit
def worst_bfmi(trace, n):
    """Lowest E-BFMI of any chain over the first n rows of the energy trace."""
    used = (jnp.arange(trace.shape[0]) < n)[:, None]
    centred = jnp.where(used, trace - jnp.sum(trace, axis=0, where=used) / n, 0.0)
    jumps = jnp.where(used[1:], jnp.diff(trace, axis=0), 0.0)
    return jnp.min(jnp.sum(jumps ** 2, axis=0) / jnp.sum(centred ** 2, axis=0))


@jax.jit
def summarise(moments: Moments):
    """Largest R-hat, and posterior means of the headline parameters."""
    def rhat(mean, m2):
        return jnp.max(jnp.sqrt(1.0 + jnp.var(mean, axis=0) / jnp.mean(m2 / (moments.n - 1.0), axis=0)))
    worst = jtu.tree_reduce(jnp.maximum, jtu.tree_map(rhat, moments.mean, moments.m2))
    return worst, moments.mean.beta.mean(0), jnp.exp(moments.mean.log_phi).mean()


def main(steps: int):
    logdensity = make_logdensity(simulate_survey(2024))
    transition = build_transition(logdensity)
    k_init, k_run = jax.random.split(jax.random.key(7))
    q0 = initial_position(k_init)
    inv_mass = pooled_metric(q0)
    hmc = HMCState(q0, *jax.jit(jax.vmap(jax.value_and_grad(logdensity)))(q0))
    state = SamplerState(k_run, hmc, da_init(0.05), fresh_moments(q0), jnp.zeros((N_CHAINS,), jnp.int32),
                         jnp.zeros((WARM + steps, N_CHAINS), DTYPE), jnp.zeros((), jnp.int32))

    n_adapt = steps // 2
    metric_at = {n_adapt // 4, n_adapt // 2}
    jitter_rng = np.random.default_rng(11)
    jitter, bfmi = 1.0, []
    for i in range(-WARM, steps):
        if i == 0:
            jax.block_until_ready((state, pooled_metric(state.hmc.position), summarise(state.moments),
                                   fresh_moments(state.hmc.position), worst_bfmi(state.energy_trace, WARM)))
            start = time.perf_counter()
        if i % SWEEP == 0:
            jitter = float(jitter_rng.uniform(0.85, 1.15))
        state, info = transition(state, inv_mass, jitter, i < n_adapt)
        if i % SWEEP == SWEEP - 1:
            bfmi.append(worst_bfmi(state.energy_trace, WARM + i + 1))
        if i in metric_at:
            inv_mass = pooled_metric(state.hmc.position)
            state = state._replace(da=da_init(0.2))
        if i == n_adapt:
            state = state._replace(moments=fresh_moments(state.hmc.position))
        if i > 0 and i % REPORT_EVERY == 0:
            worst, beta, phi = jax.device_get(summarise(state.moments))
            print(f"{'adapt' if i < n_adapt else 'sample':6s} {i:5d}  accept {float(info.accept.mean()):.2f}"
                  f"  R-hat {worst:.2f}  E-BFMI {float(bfmi[-1]):.2f}  beta {np.round(beta, 2)}  phi {phi:.2f}", flush=True)
    jax.block_until_ready(state)
    seconds = time.perf_counter() - start

    worst, beta, phi = jax.device_get(summarise(state.moments))
    print(f"worst R-hat {worst:.3f}, beta {np.round(beta, 3)}, {int(state.divergences.sum())} divergences")
    print(f"done {steps} steps in {seconds:.3f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 4500)
