"""Physics-informed network for the flow of a glacier along its centre line.

Solves the first-order (Blatter-Pattyn) momentum balance with Glen's flow law for
the horizontal velocity u(x, z), in scaled units, and fits noisy surface velocities
at the same time.  The network is a gated MLP on random Fourier features.

    python glacier_pinn.py [STEPS]
"""
import sys
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

ASPECT = 0.2          # thickness over length
GRAVITY = 4.0         # scaled rho * g
GLEN_N = 3.0
STRAIN_FLOOR = 1e-4   # keeps the viscosity finite where the ice does not deform

WIDTH = 32
DEPTH = 4
N_FREQ = 24
N_SIDE = 32           # the interior has N_SIDE ** 2 collocation points
N_EDGE = 256
N_OBS = 256
CHUNK = 5             # updates for each call
LOG_EVERY = 500       # updates
TERMS = ("momentum", "surface", "bed", "inflow", "data")

FREQS = np.random.default_rng(11).normal(0.0, 1.5, (2, N_FREQ)).astype(np.float32)


# --- geometry -------------------------------------------------------------

def surface(x):
    return 1.0 - 0.3 * x + 0.02 * jnp.sin(2.0 * jnp.pi * x)


def surface_slope(x):
    return -0.3 + 0.04 * jnp.pi * jnp.cos(2.0 * jnp.pi * x)


def bed(x):
    return -0.1 + 0.1 * jnp.sin(3.0 * jnp.pi * x)


def to_column(x, zeta):
    """Points (x, z) from x and the relative height in the ice column."""
    low = bed(x)
    return jnp.stack([x, low + zeta * (surface(x) - low)], axis=-1)


def shallow_ice(xz):
    """Velocity of the shallow-ice approximation: the inflow profile and first guess."""
    x, z = xz[:, 0], xz[:, 1]
    rate = (GRAVITY * jnp.abs(surface_slope(x)) / 0.7937) ** 3
    thick = surface(x) - bed(x)
    return 0.25 * rate * (thick ** 4 - (surface(x) - z) ** 4)


# --- network --------------------------------------------------------------

def dense_init(key, n_in, n_out):
    scale = np.sqrt(2.0 / (n_in + n_out)).astype(np.float32)
    return {"w": scale * jax.random.normal(key, (n_in, n_out)), "b": jnp.zeros((n_out,))}


def init_params(key):
    k_in, k_u, k_v, k_h, k_out = jax.random.split(key, 5)
    n_feat = 2 * N_FREQ + 2
    scale = np.sqrt(1.0 / WIDTH).astype(np.float32)
    return {
        "inp": dense_init(k_in, n_feat, WIDTH),
        "gate_u": dense_init(k_u, n_feat, WIDTH),
        "gate_v": dense_init(k_v, n_feat, WIDTH),
        "hidden": {
            "w": scale * jax.random.normal(k_h, (DEPTH, WIDTH, WIDTH)),
            "b": jnp.zeros((DEPTH, WIDTH)),
            "slope": jnp.ones((DEPTH, 1)),
        },
        "out": dense_init(k_out, WIDTH, 1),
    }


def dense(p, x):
    return x @ p["w"] + p["b"]


def velocity(params, xz):
    phase = xz @ FREQS
    feats = jnp.concatenate([xz, jnp.sin(phase), jnp.cos(phase)], axis=-1)
    gate_u = jnp.tanh(dense(params["gate_u"], feats))
    gate_v = jnp.tanh(dense(params["gate_v"], feats))

    def layer(h, p):
        z = jnp.tanh(p["slope"] * (h @ p["w"] + p["b"]))
        return (1.0 - z) * gate_u + z * gate_v, None

    h = jnp.tanh(dense(params["inp"], feats))
    h, _ = lax.scan(layer, h, params["hidden"])
    return dense(params["out"], h)[:, 0]


# --- physics --------------------------------------------------------------

def stress(params, xz):
    """Longitudinal and shear stress from the velocity gradient."""
    du = jax.grad(lambda q: velocity(params, q).sum())(xz)
    ux, uz = du[:, 0], du[:, 1]
    strain2 = ASPECT ** 2 * ux ** 2 + 0.25 * uz ** 2 + STRAIN_FLOOR
    eta = 0.5 * strain2 ** ((1.0 - GLEN_N) / (2.0 * GLEN_N))
    return 4.0 * ASPECT ** 2 * eta * ux, eta * uz


def momentum_residual(params, xz):
    along = jnp.zeros_like(xz).at[:, 0].set(1.0)
    up = jnp.zeros_like(xz).at[:, 1].set(1.0)
    field = partial(stress, params)
    _, (dsxx_dx, _) = jax.jvp(field, (xz,), (along,))
    _, (_, dsxz_dz) = jax.jvp(field, (xz,), (up,))
    return dsxx_dx + dsxz_dz - GRAVITY * surface_slope(xz[:, 0])


def sample_interior(key):
    """One jittered point in each cell of a regular grid."""
    jitter = jax.random.uniform(key, (N_SIDE, N_SIDE, 2))
    i = jnp.arange(N_SIDE, dtype=jnp.float32)
    cells = jnp.stack(jnp.meshgrid(i, i, indexing="ij"), axis=-1)
    unit = ((cells + jitter) / N_SIDE).reshape(-1, 2)
    return to_column(unit[:, 0], unit[:, 1])


def sample_points(key):
    k_int, k_surf, k_bed, k_in = jax.random.split(key, 4)
    x_surf = jax.random.uniform(k_surf, (N_EDGE,))
    x_bed = jax.random.uniform(k_bed, (N_EDGE,))
    zeta_in = jax.random.uniform(k_in, (N_EDGE // 2,))
    return {
        "interior": sample_interior(k_int),
        "surface": to_column(x_surf, jnp.ones_like(x_surf)),
        "bed": to_column(x_bed, jnp.zeros_like(x_bed)),
        "inflow": to_column(jnp.zeros_like(zeta_in), zeta_in),
    }


def loss_terms(params, pts, obs):
    balance = momentum_residual(params, pts["interior"])
    sxx, sxz = stress(params, pts["surface"])
    traction = sxx * surface_slope(pts["surface"][:, 0]) - sxz
    slip = velocity(params, pts["bed"])
    inflow = velocity(params, pts["inflow"]) - shallow_ice(pts["inflow"])
    misfit = velocity(params, obs["xz"]) - obs["u"]
    return jnp.stack([jnp.mean(r ** 2) for r in (balance, traction, slip, inflow, misfit)])


def total_loss(params, weights, pts, obs):
    terms = loss_terms(params, pts, obs)
    return jnp.sum(weights * terms), terms


# --- training -------------------------------------------------------------

TX = optax.chain(
    optax.clip_by_global_norm(1.0),
    optax.adam(optax.exponential_decay(2e-3, 1000, 0.9)),
)


def rebalance(weights, terms, previous):
    """Relative loss balancing: terms that fall slowly gain weight."""
    target = len(TERMS) * jax.nn.softmax(terms / (previous + 1e-8))
    return 0.99 * weights + 0.01 * target


@partial(jax.jit, donate_argnums=0)
def train_chunk(state, obs):
    def update(state, _):
        key, sub = jax.random.split(state["key"])
        pts = sample_points(sub)
        grad_fn = jax.value_and_grad(total_loss, has_aux=True)
        (_, terms), grads = grad_fn(state["params"], state["weights"], pts, obs)
        updates, opt = TX.update(grads, state["opt"], state["params"])
        new_state = {
            "params": optax.apply_updates(state["params"], updates),
            "opt": opt,
            "weights": rebalance(state["weights"], terms, state["terms"]),
            "terms": terms,
            "key": key,
        }
        return new_state, terms

    return lax.scan(update, state, None, length=CHUNK)


def make_observations(seed=3):
    rng = np.random.default_rng(seed)
    x = jnp.asarray(np.sort(rng.random(N_OBS)), dtype=jnp.float32)
    xz = to_column(x, jnp.ones_like(x))
    noise = jnp.asarray(rng.normal(0.0, 0.02, N_OBS), dtype=jnp.float32)
    return {"xz": xz, "u": shallow_ice(xz) + noise}


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    n_chunks = max(2, steps // CHUNK)
    n_warm = max(1, n_chunks // 4)

    obs = make_observations()
    params = init_params(jax.random.PRNGKey(0))
    state = {
        "params": params,
        "opt": TX.init(params),
        "weights": jnp.ones((len(TERMS),)),
        "terms": jnp.full((len(TERMS),), 1.0, dtype=jnp.float32),
        "key": jax.random.PRNGKey(1),
    }
    n_par = sum(p.size for p in jax.tree.leaves(params))
    print(f"{n_par} parameters, {N_SIDE ** 2} interior points")

    start = None
    for chunk in range(n_chunks):
        if chunk == n_warm:
            jax.block_until_ready(state)
            start = time.perf_counter()
        state, terms = train_chunk(state, obs)
        done = (chunk + 1) * CHUNK
        if done % LOG_EVERY == 0:
            last = np.asarray(terms[-1])
            print(f"{done:6d}  " + "  ".join(f"{t} {v:.2e}" for t, v in zip(TERMS, last)))
    jax.block_until_ready(state)
    seconds = time.perf_counter() - start

    rms = jnp.sqrt(jnp.mean((velocity(state["params"], obs["xz"]) - obs["u"]) ** 2))
    print(f"surface velocity misfit {float(rms):.4f}")
    n = (n_chunks - n_warm) * CHUNK
    print(f"done {n} steps in {seconds:.3f} s")


if __name__ == "__main__":
    main()
