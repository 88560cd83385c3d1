"""Energy regression on small molecules: message passing with equinox.

Molecules are packed into flat node / edge lists of a fixed budget, a thread
collates the next batches while the current one is in flight.
"""
import queue
import sys
import threading
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy.spatial import cKDTree

N_MOL = 1500
MOLS_PER_BATCH = 48
CUTOFF = 2.2
NODE_BUDGET = 704
EDGE_BUDGET = 3840
N_SPECIES = 5
WIDTH = 48
N_RBF = 12
WARMUP = 5


def neighbours(pos):
    """All ordered pairs (i, j) nearer than CUTOFF."""
    pairs = cKDTree(pos).query_pairs(CUTOFF, output_type="ndarray")
    both = np.concatenate([pairs, pairs[:, ::-1]], axis=0)
    return both.astype(np.int32)


def make_molecule(rng):
    n = int(rng.integers(8, 19))
    pos = rng.normal(size=(n, 3)) * 0.5 * n ** (1 / 3)
    kind = rng.integers(0, N_SPECIES, size=n)
    edges = neighbours(pos)
    d = np.linalg.norm(pos[edges[:, 0]] - pos[edges[:, 1]], axis=1)
    charge = np.linspace(-1.0, 1.0, N_SPECIES)[kind]
    energy = np.sum(charge[edges[:, 0]] * charge[edges[:, 1]] * np.exp(-d)) + 0.1 * n
    return {
        "pos": pos.astype(np.float32),
        "kind": kind.astype(np.int32),
        "edges": edges,
        "energy": np.float32(energy / n),
    }


def node_edge_sizes(n_nodes, n_edges):
    """Sizes of the padded arrays for a batch of this many nodes and edges."""
    return NODE_BUDGET, EDGE_BUDGET


def collate(mols):
    pos, kind, seg, src, dst = [], [], [], [], []
    offset = 0
    for k, m in enumerate(mols):
        edges = m["edges"]
        pos.append(m["pos"])
        kind.append(m["kind"])
        seg.append(np.full(len(m["pos"]), k, np.int32))
        src.append(edges[:, 0] + offset)
        dst.append(edges[:, 1] + offset)
        offset += len(m["pos"])
    src, dst = np.concatenate(src), np.concatenate(dst)
    n_cap, e_cap = node_edge_sizes(offset + 1, len(src))
    # the last node and the last graph are the bin for padding
    out_pos = np.zeros((n_cap, 3), np.float32)
    out_kind = np.zeros(n_cap, np.int32)
    out_seg = np.full(n_cap, MOLS_PER_BATCH, np.int32)
    out_src = np.full(e_cap, n_cap - 1, np.int32)
    out_dst = np.full(e_cap, n_cap - 1, np.int32)
    n, e = min(offset, n_cap - 1), min(len(src), e_cap)
    out_pos[:n] = np.concatenate(pos)[:n]
    out_kind[:n] = np.concatenate(kind)[:n]
    out_seg[:n] = np.concatenate(seg)[:n]
    out_src[:e], out_dst[:e] = src[:e], dst[:e]
    target = np.array([m["energy"] for m in mols], np.float32)
    return out_pos, out_kind, out_seg, out_src, out_dst, target


def batches(data, rng, depth=3):
    """Endless generator of batches, collated ahead in a thread."""
    ready = queue.Queue(maxsize=depth)

    def work():
        while True:
            pick = rng.integers(0, len(data), size=MOLS_PER_BATCH)
            ready.put(collate([data[i] for i in pick]))

    threading.Thread(target=work, daemon=True).start()
    while True:
        yield ready.get()


class Layer(eqx.Module):
    message: eqx.nn.MLP
    update: eqx.nn.Linear

    def __init__(self, key):
        a, b = jax.random.split(key)
        self.message = eqx.nn.MLP(2 * WIDTH + N_RBF, WIDTH, WIDTH, 1, jax.nn.silu, key=a)
        self.update = eqx.nn.Linear(2 * WIDTH, WIDTH, key=b)

    def __call__(self, h, rbf, gate, src, dst):
        m = jax.vmap(self.message)(jnp.concatenate([h[src], h[dst], rbf], axis=-1))
        agg = jax.ops.segment_sum(m * gate[:, None], dst, num_segments=h.shape[0])
        return h + jax.nn.silu(jax.vmap(self.update)(jnp.concatenate([h, agg], axis=-1)))


class Net(eqx.Module):
    embed: jax.Array
    layers: list
    head: eqx.nn.MLP

    def __init__(self, key):
        keys = jax.random.split(key, 5)
        self.embed = 0.3 * jax.random.normal(keys[0], (N_SPECIES, WIDTH))
        self.layers = [Layer(k) for k in keys[1:4]]
        self.head = eqx.nn.MLP(WIDTH, 1, WIDTH, 1, jax.nn.silu, key=keys[4])

    def __call__(self, pos, kind, seg, src, dst):
        diff = pos[src] - pos[dst]
        d = jnp.sqrt(jnp.sum(diff**2, axis=-1) + 1e-6)
        centres = jnp.linspace(0.0, CUTOFF, N_RBF)
        rbf = jnp.exp(-8.0 * (d[:, None] - centres) ** 2)
        gate = jnp.where(src == dst, 0.0, 0.5 * (jnp.cos(jnp.pi * d / CUTOFF) + 1.0))
        h = self.embed[kind]
        for layer in self.layers:
            h = layer(h, rbf, gate, src, dst)
        atom = jax.vmap(self.head)(h)[:, 0]
        total = jax.ops.segment_sum(atom, seg, num_segments=MOLS_PER_BATCH + 1)
        count = jax.ops.segment_sum(jnp.ones_like(atom), seg, num_segments=MOLS_PER_BATCH + 1)
        return (total / jnp.maximum(count, 1.0))[:-1]


def loss_fn(model, batch):
    *graph, target = batch
    return jnp.mean((model(*graph) - target) ** 2)


def main(steps):
    rng = np.random.default_rng(0)
    data = [make_molecule(rng) for _ in range(N_MOL)]
    held_out = collate(data[:MOLS_PER_BATCH])
    model = Net(jax.random.PRNGKey(1))
    optim = optax.adamw(1e-3)
    opt_state = optim.init(eqx.filter(model, eqx.is_array))

    @eqx.filter_jit(donate="all-except-first")
    def train_step(batch, model, opt_state):
        loss, grads = eqx.filter_value_and_grad(loss_fn)(model, batch)
        updates, opt_state = optim.update(grads, opt_state, eqx.filter(model, eqx.is_array))
        return eqx.apply_updates(model, updates), opt_state, loss

    evaluate = eqx.filter_jit(loss_fn)
    stream = batches(data[MOLS_PER_BATCH:], rng)
    for step in range(steps):
        if step == WARMUP:
            jax.block_until_ready((model, opt_state))
            start = time.perf_counter()
        model, opt_state, loss = train_step(next(stream), model, opt_state)
        if step % 50 == 0:
            print(f"step {step} mse {float(loss):.4f}", flush=True)
        if step % 200 == 199:
            print(f"  held out {float(evaluate(model, held_out)):.4f}", flush=True)
    jax.block_until_ready((model, opt_state))
    wall = time.perf_counter() - start
    print(f"done {steps - WARMUP} steps in {wall:.3f} s", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 15000)
