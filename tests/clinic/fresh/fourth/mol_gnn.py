"""Message passing network on random molecule-like graphs: regression of a made-up 'solubility'.

    python mol_gnn.py [STEPS]
"""
import dataclasses
import sys
import time
from functools import partial
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training import train_state

ELEMENTS = ["C", "N", "O", "F", "S", "Cl"]
BONDS = 4


@dataclasses.dataclass(frozen=True)
class Config:
    graphs_per_batch: int = 48
    node_budget: int = 48 * 19
    edge_budget: int = 48 * 40
    hidden: int = 64
    rounds: int = 3
    lr: float = 2e-3
    ema: float = 0.995
    log_every: int = 2000


class Graphs(NamedTuple):
    atoms: np.ndarray       # [N, F]
    bonds: np.ndarray       # [E, BONDS]
    src: np.ndarray
    dst: np.ndarray
    graph_of: np.ndarray    # [N]
    y: np.ndarray           # [G]
    w: np.ndarray           # [G] weight, 0 for the padding graph


def random_molecule(rng):
    n = int(rng.integers(8, 26))
    elem = rng.choice(len(ELEMENTS), size=n, p=[.6, .12, .15, .05, .05, .03])
    parent = (rng.random(n - 1) * np.arange(1, n)).astype(np.int32)
    a, b = parent, np.arange(1, n, dtype=np.int32)
    if n > 12:                                   # close a ring
        a, b = np.append(a, 0).astype(np.int32), np.append(b, 7).astype(np.int32)
    order = rng.integers(0, BONDS, size=len(a))
    y = (elem == 2).sum() * 0.7 - 0.12 * n + 0.3 * (order == 1).sum() + 0.1 * rng.normal()
    return elem, np.concatenate([a, b]), np.concatenate([b, a]), np.concatenate([order, order]), y


def featurize(elem, dst):
    """One-hot element, one-hot degree."""
    degree = np.minimum(np.bincount(dst, minlength=len(elem)), 5)
    return np.concatenate([np.eye(len(ELEMENTS), dtype=np.float32)[elem],
                           np.eye(6, dtype=np.float32)[degree]], axis=1)


def build_dataset(n, seed=0):
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(n):
        elem, src, dst, order, y = random_molecule(rng)
        out.append((elem, featurize(elem, dst), np.eye(BONDS, dtype=np.float32)[order], src, dst, y))
    return out


def collate(mols, cfg):
    n_node = np.array([len(m[0]) for m in mols])
    n_edge = np.array([len(m[3]) for m in mols])
    shift = np.repeat(np.cumsum(n_node) - n_node, n_edge)
    N, E, G = cfg.node_budget, cfg.edge_budget, len(mols) + 1
    tn, te = n_node.sum(), n_edge.sum()
    atoms = np.zeros((N, 12), np.float32)
    bonds = np.zeros((E, BONDS), np.float32)
    src, dst = np.full(E, N - 1, np.int32), np.full(E, N - 1, np.int32)
    graph_of = np.full(N, G - 1, np.int32)
    np.concatenate([m[1] for m in mols], out=atoms[:tn])
    np.concatenate([m[2] for m in mols], out=bonds[:te])
    src[:te] = np.concatenate([m[3] for m in mols]) + shift
    dst[:te] = np.concatenate([m[4] for m in mols]) + shift
    graph_of[:tn] = np.repeat(np.arange(len(mols)), n_node)
    y = np.array([m[5] for m in mols] + [0.0], np.float32)
    w = np.ones(G, np.float32)
    w[-1] = 0.0
    return Graphs(atoms, bonds, src, dst, graph_of, y, w)


def batches(dataset, cfg, seed=1):
    rng = np.random.default_rng(seed)
    while True:
        picked, nodes, edges = [], 0, 0
        for i in rng.permutation(len(dataset)):
            m = dataset[i]
            full = (len(picked) == cfg.graphs_per_batch
                    or nodes + len(m[0]) >= cfg.node_budget or edges + len(m[3]) > cfg.edge_budget)
            if full and len(picked) < cfg.graphs_per_batch:
                continue                         # does not fit the budget, try a smaller one
            if full:
                yield collate(picked, cfg)
                picked, nodes, edges = [], 0, 0
            picked.append(m)
            nodes, edges = nodes + len(m[0]), edges + len(m[3])


class MPNN(nn.Module):
    hidden: int
    rounds: int

    @nn.compact
    def __call__(self, g: Graphs, n_graphs: int):
        h = nn.Dense(self.hidden)(g.atoms)
        for _ in range(self.rounds):
            pair = jnp.concatenate([h[g.src], h[g.dst], g.bonds], axis=-1)
            msg = nn.Dense(self.hidden)(nn.silu(nn.Dense(self.hidden)(pair)))
            agg = jax.ops.segment_sum(msg, g.dst, num_segments=h.shape[0])
            h = nn.LayerNorm()(h + nn.Dense(self.hidden)(nn.silu(jnp.concatenate([h, agg], -1))))
        pooled = jax.ops.segment_sum(h, g.graph_of, num_segments=n_graphs)
        return nn.Dense(1)(nn.silu(nn.Dense(self.hidden)(pooled)))[:, 0], h


class TrainState(train_state.TrainState):
    ema_params: dict


def loss_fn(params, apply_fn, g):
    pred, h = apply_fn({"params": params}, g, g.y.shape[0])
    loss = jnp.sum(g.w * (pred - g.y) ** 2) / jnp.sum(g.w)
    return loss, {"mse": loss, "mae": jnp.sum(g.w * jnp.abs(pred - g.y)) / jnp.sum(g.w)}


@partial(jax.jit, donate_argnums=0)
def train_step(state, g, decay):
    grads, aux = jax.grad(loss_fn, has_aux=True)(state.params, state.apply_fn, g)
    state = state.apply_gradients(grads=grads)
    return state.replace(ema_params=optax.incremental_update(state.params, state.ema_params, 1 - decay)), aux


def main(cfg, steps):
    stream = batches(build_dataset(4000), cfg)
    model = MPNN(cfg.hidden, cfg.rounds)
    first = next(stream)
    params = model.init(jax.random.key(0), first, first.y.shape[0])["params"]
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(cfg.lr))
    state = TrainState.create(apply_fn=model.apply, params=params, tx=tx,
                              ema_params=jax.tree.map(jnp.copy, params))
    history = []
    for _ in range(5):
        state, aux = train_step(state, next(stream), cfg.ema)
    jax.block_until_ready(state.params)
    t0 = time.perf_counter()
    for i in range(1, steps + 1):
        state, aux = train_step(state, next(stream), cfg.ema)
        if i % cfg.log_every == 0:
            history.append({k: float(v) for k, v in aux.items()})
            print(f"step {i:6d}  mae {history[-1]['mae']:.3f}", flush=True)
    jax.block_until_ready(state.params)
    print(f"done {steps} steps in {time.perf_counter() - t0:.4f} s")


if __name__ == "__main__":
    main(Config(), int(sys.argv[1]) if len(sys.argv) > 1 else 60000)
