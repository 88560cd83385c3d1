"""Energies of toy molecules with a continuous-filter graph network (segment_sum).

    python healthy.py [STEPS]

Each batch of molecules is rotated, jittered and connected anew on the host.
"""
import sys
import time
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

GRAPHS = 48
NEIGHBOURS = 4
MAX_NODES = 1024
MAX_EDGES = MAX_NODES * NEIGHBOURS
HIDDEN = 48
LAYERS = 2
N_RBF = 16
N_SPECIES = 5
DEFAULT_STEPS = 12000


@dataclass
class Atom:
    element: int
    charge: float
    bonded_to: list


@dataclass
class Molecule:
    atoms: list
    species: np.ndarray
    coords: np.ndarray
    energy: float


class Batch(NamedTuple):
    species: np.ndarray  # [nodes], the last node is padding
    graph: np.ndarray  # [nodes], padding nodes belong to graph GRAPHS
    src: np.ndarray  # [edges], padding edges join the last node to itself
    dst: np.ndarray
    distance: np.ndarray
    energy: np.ndarray  # [GRAPHS]


def make_molecule(rng):
    n = int(rng.integers(12, 25))
    coords = np.zeros((n, 3))
    bonds = []
    for i in range(1, n):
        parent = int(rng.integers(max(0, i - 3), i))
        step = rng.standard_normal(3)
        coords[i] = coords[parent] + 1.4 * step / np.linalg.norm(step)
        bonds.append((parent, i))
    species = rng.integers(N_SPECIES, size=n)
    atoms = [Atom(int(s), float(c), []) for s, c in zip(species, rng.normal(size=n))]
    for a, b in bonds:
        atoms[a].bonded_to.append(atoms[b])
        atoms[b].bonded_to.append(atoms[a])
    distance = np.linalg.norm(coords[:, None] - coords[None], axis=-1) + 10.0 * np.eye(n)
    strength = 0.5 + 0.2 * (species[:, None] + species[None])
    energy = float((strength * np.exp(-0.5 * distance)).sum() / n - 2.0)
    return Molecule(atoms, species.astype(np.int32), coords.astype(np.float32), energy)


def connect(mol, rng):
    """Nearest neighbours of a rotated and slightly moved copy."""
    n = len(mol.species)
    rotation, _ = np.linalg.qr(rng.standard_normal((3, 3)))
    coords = mol.coords @ rotation.T + 0.02 * rng.standard_normal((n, 3))
    distance = np.sqrt(((coords[:, None] - coords[None]) ** 2).sum(-1))
    np.fill_diagonal(distance, np.inf)
    nearest = np.argsort(distance, axis=1)[:, :NEIGHBOURS]
    lengths = np.take_along_axis(distance, nearest, axis=1)
    return nearest.ravel(), np.repeat(np.arange(n), NEIGHBOURS), lengths.ravel()


def assemble(molecules, rng):
    species = np.zeros(MAX_NODES, np.int32)
    graph = np.full(MAX_NODES, GRAPHS, np.int32)
    src = np.full(MAX_EDGES, MAX_NODES - 1, np.int32)
    dst = np.full(MAX_EDGES, MAX_NODES - 1, np.int32)
    distance = np.full(MAX_EDGES, 50.0, np.float32)
    node = edge = 0
    for g, mol in enumerate(molecules):
        n = len(mol.species)
        if node + n >= MAX_NODES:
            break
        s, d, length = connect(mol, rng)
        species[node : node + n] = mol.species
        graph[node : node + n] = g
        src[edge : edge + len(s)] = s + node
        dst[edge : edge + len(d)] = d + node
        distance[edge : edge + len(s)] = length
        node += n
        edge += len(s)
    energy = np.array([mol.energy for mol in molecules], np.float32)
    return Batch(species, graph, src, dst, distance, energy)


def sample_batch(molecules, rng):
    picked = rng.integers(len(molecules), size=GRAPHS)
    return assemble([molecules[i] for i in picked], rng)


def dense_init(key, m, n):
    return {"w": jax.random.normal(key, (m, n)) / m**0.5, "b": jnp.zeros((n,))}


def dense(layer, x):
    return x @ layer["w"] + layer["b"]


def init_params(key):
    keys = iter(jax.random.split(key, 3 + 5 * LAYERS))
    return {
        "embed": jax.random.normal(next(keys), (N_SPECIES, HIDDEN)),
        "layers": [
            {
                "filter1": dense_init(next(keys), N_RBF, HIDDEN),
                "filter2": dense_init(next(keys), HIDDEN, HIDDEN),
                "inside": dense_init(next(keys), HIDDEN, HIDDEN),
                "after1": dense_init(next(keys), HIDDEN, HIDDEN),
                "after2": dense_init(next(keys), HIDDEN, HIDDEN),
            }
            for _ in range(LAYERS)
        ],
        "read1": dense_init(next(keys), HIDDEN, HIDDEN),
        "read2": dense_init(next(keys), HIDDEN, 1),
    }


def energies(params, batch):
    centres = jnp.linspace(0.5, 5.0, N_RBF)
    rbf = jnp.exp(-4.0 * (batch.distance[:, None] - centres) ** 2)
    h = params["embed"][batch.species]
    for layer in params["layers"]:
        weights = dense(layer["filter2"], jax.nn.silu(dense(layer["filter1"], rbf)))
        messages = dense(layer["inside"], h)[batch.src] * weights
        gathered = jax.ops.segment_sum(messages, batch.dst, num_segments=h.shape[0])
        h = h + dense(layer["after2"], jax.nn.silu(dense(layer["after1"], gathered)))
    per_atom = dense(params["read2"], jax.nn.silu(dense(params["read1"], h)))[:, 0]
    total = jax.ops.segment_sum(per_atom, batch.graph, num_segments=GRAPHS + 1)[:GRAPHS]
    atoms = jax.ops.segment_sum(jnp.ones_like(per_atom), batch.graph, num_segments=GRAPHS + 1)[:GRAPHS]
    return total / jnp.maximum(atoms, 1.0)


def loss_fn(params, batch):
    return jnp.mean((energies(params, batch) - batch.energy) ** 2)


optimizer = optax.chain(optax.clip_by_global_norm(5.0), optax.adam(1e-3))


@partial(jax.jit, donate_argnums=(0, 1))
def train_step(params, opt_state, batch):
    loss, grads = jax.value_and_grad(loss_fn)(params, batch)
    updates, opt_state = optimizer.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss


def main(steps):
    rng = np.random.default_rng(0)
    molecules = [make_molecule(rng) for _ in range(4000)]
    params = init_params(jax.random.key(0))
    opt_state = optimizer.init(params)

    batch = sample_batch(molecules, rng)
    for step in range(1, steps + 11):
        params, opt_state, loss = train_step(params, opt_state, batch)
        batch = sample_batch(molecules, rng)
        if step % 50 == 0:
            print(f"step {step:6d}  mse {float(loss):.5f}", flush=True)
        if step == 10:
            jax.block_until_ready(params)
            start = time.perf_counter()
    jax.block_until_ready(params)
    print(f"done {steps} steps in {time.perf_counter() - start:.2f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_STEPS)
