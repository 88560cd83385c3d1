"""GraphSAGE in plain JAX: which community does a member of a large social graph belong to?

The graph is a degree-corrected block model. Features stay on the device; a thread samples two hops
of neighbours with numpy and the step only receives node numbers.

    python graph_sage.py [STEPS]
"""
import queue
import sys
import threading
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

NODES, CLASSES, DIM, HIDDEN = 60_000, 12, 128, 128
DEGREE = 14
FAN1, FAN2 = 10, 6
BATCH = 64
LR, BETA1, BETA2, EPS, DECAY = 3e-3, 0.9, 0.999, 1e-8, 1e-5
LOG_EVERY = 1000


# ------------------------------------------------------------------ graph

def build_graph(rng):
    """Edges as CSR (offsets, targets); labels; noisy features that alone are not enough."""
    label = rng.integers(0, CLASSES, NODES)
    members = [np.flatnonzero(label == c) for c in range(CLASSES)]
    popularity = rng.pareto(2.5, NODES) + 0.5
    src, dst = [], []
    for c in range(CLASSES):
        m = members[c]
        out = np.repeat(m, DEGREE)
        inside = rng.random(out.size) < 0.6
        p = popularity[m] / popularity[m].sum()
        target = np.where(inside, m[rng.choice(m.size, out.size, p=p)], rng.integers(0, NODES, out.size))
        src.append(out)
        dst.append(target)
    src, dst = np.concatenate(src), np.concatenate(dst)
    src, dst = np.concatenate([src, dst]), np.concatenate([dst, src])
    order = np.argsort(src, kind="stable")
    src, dst = src[order], dst[order]
    offsets = np.searchsorted(src, np.arange(NODES + 1))
    centre = rng.standard_normal((CLASSES, DIM)) * 0.12
    feats = (centre[label] + rng.standard_normal((NODES, DIM))).astype(np.float32)
    return offsets.astype(np.int64), dst.astype(np.int32), label.astype(np.int32), feats


class NeighbourSampler:
    """Uniform sampling with replacement, for whole arrays of nodes at once."""

    def __init__(self, offsets, targets, seed):
        self.offsets, self.targets = offsets, targets
        self.degree = np.diff(offsets)
        self.rng = np.random.default_rng(seed)

    def neighbours(self, nodes, fan):
        pick = (self.rng.random((*nodes.shape, fan)) * self.degree[nodes][..., None]).astype(np.int64)
        return self.targets[self.offsets[nodes][..., None] + pick]

    def batch(self, pool):
        seeds = pool[self.rng.integers(0, pool.size, BATCH)].astype(np.int32)
        hop1 = self.neighbours(seeds, FAN1)
        hop2 = self.neighbours(hop1, FAN2)
        return seeds, hop1, hop2


class Prefetcher(threading.Thread):
    """Keeps a few sampled batches ready."""

    def __init__(self, make, depth=6):
        super().__init__(daemon=True)
        self.make, self.ready = make, queue.Queue(maxsize=depth)
        self.start()

    def run(self):
        while True:
            self.ready.put(self.make())

    def next(self):
        return self.ready.get()


# ------------------------------------------------------------------ model

def init_params(key):
    def dense(key, n_in, n_out):
        return {"w": jax.random.normal(key, (n_in, n_out)) * np.sqrt(2.0 / n_in).astype(np.float32),
                "b": jnp.zeros(n_out)}
    k = jax.random.split(key, 5)
    return {"self1": dense(k[0], DIM, HIDDEN), "near1": dense(k[1], DIM, HIDDEN),
            "self2": dense(k[2], HIDDEN, HIDDEN), "near2": dense(k[3], HIDDEN, HIDDEN),
            "head": dense(k[4], HIDDEN, CLASSES)}


def linear(p, x):
    return x @ p["w"] + p["b"]


def sage_layer(p_self, p_near, own, near):
    h = jax.nn.relu(linear(p_self, own) + linear(p_near, near.mean(-2)))
    return h * jax.lax.rsqrt(jnp.mean(h * h, -1, keepdims=True) + 1e-6)


def forward(params, feats, seeds, hop1, hop2):
    x0, x1, x2 = feats[seeds], feats[hop1], feats[hop2]
    h0 = sage_layer(params["self1"], params["near1"], x0, x1)
    h1 = sage_layer(params["self1"], params["near1"], x1, x2)
    h = sage_layer(params["self2"], params["near2"], h0, h1)
    return linear(params["head"], h)


def loss_fn(params, feats, labels, seeds, hop1, hop2):
    logits = forward(params, feats, seeds, hop1, hop2)
    logp = jax.nn.log_softmax(logits)
    target = labels[seeds]
    loss = -jnp.take_along_axis(logp, target[:, None], 1).mean()
    return loss, (logits.argmax(-1) == target).mean()


# ------------------------------------------------------------------ optimiser

def adam_init(params):
    zeros = jax.tree.map(jnp.zeros_like, params)
    return {"m": zeros, "v": jax.tree.map(jnp.copy, zeros), "t": jnp.zeros((), jnp.int32)}


def adam_update(params, grads, opt):
    t = opt["t"] + 1
    m = jax.tree.map(lambda m, g: BETA1 * m + (1 - BETA1) * g, opt["m"], grads)
    v = jax.tree.map(lambda v, g: BETA2 * v + (1 - BETA2) * g * g, opt["v"], grads)
    rate = LR * jnp.sqrt(1 - BETA2 ** t) / (1 - BETA1 ** t)
    new = jax.tree.map(lambda p, m, v: p - rate * m / (jnp.sqrt(v) + EPS) - LR * DECAY * p, params, m, v)
    return new, {"m": m, "v": v, "t": t}


@partial(jax.jit, donate_argnums=(0, 1))
def train_step(params, opt, feats, labels, seeds, hop1, hop2):
    (loss, acc), grads = jax.value_and_grad(loss_fn, has_aux=True)(params, feats, labels, seeds, hop1, hop2)
    params, opt = adam_update(params, grads, opt)
    return params, opt, loss, acc


eval_step = jax.jit(loss_fn)


def accuracy(params, feats, labels, sampler, pool, rounds=8):
    scores = [eval_step(params, feats, labels, *sampler.batch(pool))[1] for _ in range(rounds)]
    return float(jnp.mean(jnp.stack(scores)))


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 40000
    rng = np.random.default_rng(3)
    offsets, targets, labels, feats = build_graph(rng)
    shuffled = rng.permutation(NODES)
    train_pool, test_pool = shuffled[:50_000], shuffled[50_000:]
    print(f"{NODES} nodes, {targets.size} edges", flush=True)

    sampler = NeighbourSampler(offsets, targets, seed=4)
    prefetch = Prefetcher(partial(sampler.batch, train_pool))
    test_sampler = NeighbourSampler(offsets, targets, seed=5)
    feats = jax.device_put(feats)
    labels = jax.device_put(labels)
    params = init_params(jax.random.PRNGKey(0))
    opt = adam_init(params)

    began = None
    for i in range(steps):
        if i == 5:
            jax.block_until_ready(params)
            began = time.perf_counter()
        params, opt, loss, acc = train_step(params, opt, feats, labels, *prefetch.next())
        if (i + 1) % LOG_EVERY == 0:
            print(f"{i + 1:6d}  loss {float(loss):.3f}  acc {float(acc):.3f}", flush=True)
        if (i + 1) % 10000 == 0:
            print(f"        test {accuracy(params, feats, labels, test_sampler, test_pool):.3f}", flush=True)
    jax.block_until_ready(params)
    seconds = time.perf_counter() - began
    print(f"test accuracy {accuracy(params, feats, labels, test_sampler, test_pool):.3f}")
    print(f"done {steps - 5} steps in {seconds:.3f} s")


if __name__ == "__main__":
    main()
