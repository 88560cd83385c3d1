"""Bottom-up coarse graining of a small lipid patch by force matching.

The potential between two beads of a three-bead lipid is a small MLP of their
distance. Its forces (jax.grad of the energy) are matched to the mapped atomistic
forces, less those of a simple prior (bonds and a soft core).

    python lipid_coarse.py [STEPS]
"""
import os
import sys
import tempfile
import time
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

N_LIPIDS, BEADS = 10, 3                  # beads of a lipid: head, glycerol, tail
N = N_LIPIDS * BEADS
N_FRAMES, N_TRAIN = 3000, 2800
BATCH = 32                               # frames in each update
R_CUT = 2.0                              # nm
N_RBF = 16
CENTRES = np.linspace(0.3, R_CUT, N_RBF, dtype=np.float32)
WIDTH = float(CENTRES[1] - CENTRES[0])

# topology
TYPE = np.tile(np.arange(BEADS), N_LIPIDS)
LIPID = np.repeat(np.arange(N_LIPIDS), BEADS)
BONDS = [(i, i + 1) for i in range(N - 1) if LIPID[i] == LIPID[i + 1]]
EXCLUDED = np.eye(N, dtype=bool)
for a, b in BONDS:
    EXCLUDED[a, b] = EXCLUDED[b, a] = True

# non-bonded pairs: one row each, +1 for the first bead and -1 for the second
PAIR_I, PAIR_J = np.nonzero(np.triu(~EXCLUDED, k=1))
INCIDENCE = np.zeros((len(PAIR_I), N), np.float32)
INCIDENCE[np.arange(len(PAIR_I)), PAIR_I] = 1.0
INCIDENCE[np.arange(len(PAIR_I)), PAIR_J] = -1.0
LO = np.minimum(TYPE[PAIR_I], TYPE[PAIR_J])
HI = np.maximum(TYPE[PAIR_I], TYPE[PAIR_J])
N_KINDS = BEADS * (BEADS + 1) // 2
KIND = np.eye(N_KINDS, dtype=np.float32)[LO * BEADS - LO * (LO - 1) // 2 + HI - LO]

# prior and reference, kJ/mol and nm
K_BOND, R_BOND = 1250.0, 0.47
EPS, SIGMA = 1.0, 0.35
DEPTH = np.array([[0.5, 1.0, 0.2], [1.0, 1.5, 0.8], [0.2, 0.8, 3.0]])


class Trajectory(NamedTuple):
    pos: jax.Array       # (frames, beads, 3)
    force: jax.Array     # (frames, beads, 3)


def prior_forces(x):
    """Bonds and soft core of one frame, (beads, 3)."""
    x = np.asarray(x, np.float64)
    d = x[:, None] - x[None]
    r = np.sqrt((d ** 2).sum(-1)) + np.eye(N)
    core = np.where(EXCLUDED, 0.0, 12.0 * EPS * SIGMA ** 12 / r ** 14)
    force = (core[..., None] * d).sum(1)
    for i, j in BONDS:
        v = x[j] - x[i]
        length = np.linalg.norm(v)
        pull = K_BOND * (length - R_BOND) * v / length
        force[i] += pull
        force[j] -= pull
    return force.astype(np.float32)


def attraction(pos):
    """The part of the mean force that the prior lacks, for a block of frames."""
    d = pos[:, :, None] - pos[:, None]
    r = np.sqrt((d ** 2).sum(-1)) + np.eye(N)
    g = (r - 0.6) / 0.25
    depth = np.where(EXCLUDED, 0.0, DEPTH[TYPE][:, TYPE])
    slope = 2.0 * depth * g / 0.25 * np.exp(-g * g)
    return -((slope / r)[..., None] * d).sum(2)


def write_trajectory(path, rng):
    grid = np.stack(np.meshgrid(np.arange(5), np.arange(2), indexing="ij"), -1)
    start = np.zeros((N_LIPIDS, BEADS, 3))
    start[..., :2] = 0.75 * grid.reshape(-1, 1, 2)
    start[..., 2] = R_BOND * np.arange(BEADS)
    pos = start.reshape(1, N, 3) + 0.08 * rng.standard_normal((N_FRAMES, N, 3))
    force = np.empty_like(pos)
    for k in range(0, N_FRAMES, 250):
        force[k:k + 250] = attraction(pos[k:k + 250])
    force += np.array([prior_forces(x) for x in pos])
    force += 2.0 * rng.standard_normal(force.shape)
    np.savez(path, pos=pos.astype(np.float32), force=force.astype(np.float32))


def load_trajectory(path):
    """The whole trajectory on the device, with what is left to learn as forces."""
    with np.load(path) as data:
        pos, force = data["pos"], data["force"]
    force = force - np.array([prior_forces(x) for x in pos])
    return Trajectory(jnp.asarray(pos), jnp.asarray(force))


def gather_frames(traj, idx):
    return traj.pos[idx], traj.force[idx]


def pair_energy(mlp, r, kind):
    phi = jnp.exp(-((r - CENTRES) / WIDTH) ** 2)
    window = 0.5 * (1.0 + jnp.cos(jnp.pi * jnp.minimum(r / R_CUT, 1.0)))
    return window * mlp(jnp.concatenate([phi, kind]))


def energy(mlp, x):
    d = jnp.dot(INCIDENCE, x)
    r = jnp.sqrt(jnp.sum(d ** 2, axis=-1) + 1e-10)
    return jnp.sum(jax.vmap(lambda s, k: pair_energy(mlp, s, k))(r, KIND))


def pair_forces(mlp, x):
    return -jax.grad(lambda y: energy(mlp, y))(x)


def loss_fn(mlp, pos, target, w_virial):
    error = jax.vmap(lambda x: pair_forces(mlp, x))(pos) - target
    virial = jnp.sum(pos * error, axis=(1, 2)) / N
    return jnp.mean(error ** 2) + w_virial * jnp.mean(virial ** 2)


def make_step(optimizer):
    @eqx.filter_jit
    def train_step(mlp, opt_state, traj, idx, w_virial):
        pos, target = gather_frames(traj, idx)
        loss, grads = eqx.filter_value_and_grad(loss_fn)(mlp, pos, target, w_virial)
        params = eqx.filter(mlp, eqx.is_inexact_array)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return eqx.apply_updates(mlp, updates), opt_state, loss

    return train_step


@eqx.filter_jit
def force_rmse(mlp, traj, idx):
    pos, target = gather_frames(traj, idx)
    pred = jax.vmap(lambda x: pair_forces(mlp, x))(pos)
    return jnp.sqrt(jnp.mean((pred - target) ** 2))


def virial_weight(step):
    """The virial term comes in by stages of 50 updates."""
    return 0.1 * (1.0 - 0.97 ** (step // 50))


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    rng = np.random.default_rng(4)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "patch.npz")
        write_trajectory(path, rng)
        traj = load_trajectory(path)
    valid = jnp.arange(N_TRAIN, N_TRAIN + 64, dtype=jnp.int32)

    mlp = eqx.nn.MLP(N_RBF + N_KINDS, "scalar", width_size=32, depth=2,
                     activation=jnp.tanh, dtype=jnp.float32, key=jax.random.key(0))
    schedule = optax.cosine_decay_schedule(2e-3, max(steps, 1), alpha=0.05)
    optimizer = optax.chain(optax.clip_by_global_norm(10.0), optax.adam(schedule))
    opt_state = optimizer.init(eqx.filter(mlp, eqx.is_inexact_array))
    train_step = make_step(optimizer)
    print(f"{len(PAIR_I)} pairs, rmse before {float(force_rmse(mlp, traj, valid)):.3f}")

    warmup = steps // 4
    for step in range(steps):
        if step == warmup:
            jax.block_until_ready(opt_state)
            start = time.perf_counter()
        w_virial = jnp.asarray(virial_weight(step), jnp.float32)
        idx = jnp.asarray(rng.integers(0, N_TRAIN, BATCH, dtype=np.int32))
        mlp, opt_state, loss = train_step(mlp, opt_state, traj, idx, w_virial)
        if (step + 1) % 250 == 0:
            print(f"update {step + 1:6d}  loss {float(loss):9.4f}")
        if (step + 1) % 1000 == 0:
            print(f"    held-out rmse {float(force_rmse(mlp, traj, valid)):.3f} kJ/mol/nm")
    jax.block_until_ready((opt_state, loss))
    seconds = time.perf_counter() - start

    print(f"rmse after {float(force_rmse(mlp, traj, valid)):.3f}")
    n = steps - warmup
    print(f"done {n} steps in {seconds:.3f} s")


if __name__ == "__main__":
    main()
