"""Part segmentation of synthetic tools (handle / shaft / head) scanned as point clouds. EdgeConv in Equinox."""
import sys
import time
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

N_POINTS = 64
N_CLOUDS = 60_000
K = 6
PARTS = 3
BATCH = 8
SKIP = 5


def build_scans(n, seed):
    """Each scan: a handle (cylinder), a shaft (thin cylinder), a head (box); columns x, y, z, intensity."""
    rng = np.random.default_rng(seed)
    part = rng.choice(PARTS, size=(n, N_POINTS), p=[0.4, 0.3, 0.3]).astype(np.int32)
    ang = rng.uniform(0, 2 * np.pi, part.shape)
    rad = np.choose(part, [0.12, 0.05, 0.0])
    z = np.choose(part, [rng.uniform(-1, -0.3, part.shape), rng.uniform(-0.3, 0.6, part.shape),
                         rng.uniform(0.6, 0.9, part.shape)])
    box = rng.uniform(-0.4, 0.4, part.shape + (2,)) * (part == 2)[..., None]
    xyz = np.stack([rad * np.cos(ang) + box[..., 0], rad * np.sin(ang) + 0.4 * box[..., 1], z], -1)
    xyz *= rng.uniform(0.7, 1.3, (n, 1, 3))
    inten = 0.2 * part[..., None] + rng.normal(0, 0.3, part.shape + (1,))
    scans = np.concatenate([xyz + rng.normal(0, 0.01, xyz.shape), inten], -1)
    return scans.astype(np.float32), part


def neighbours(xyz):
    """Indices of the K nearest points, self excluded. xyz: (B, N, 3)."""
    sq = jnp.sum(xyz * xyz, -1)
    d = sq[:, :, None] + sq[:, None, :] - 2 * jnp.einsum("bnc,bmc->bnm", xyz, xyz)
    d = d + 1e6 * jnp.eye(xyz.shape[1])
    return jax.lax.top_k(-d, K)[1]


class EdgeConv(eqx.Module):
    centre: eqx.nn.Linear
    edge: eqx.nn.Linear
    norm: eqx.nn.LayerNorm

    def __init__(self, cin, cout, key):
        a, b = jr.split(key)
        self.centre = eqx.nn.Linear(cin, cout, key=a)
        self.edge = eqx.nn.Linear(cin, cout, use_bias=False, key=b)
        self.norm = eqx.nn.LayerNorm(cout)

    def __call__(self, h, idx):
        c = jax.vmap(self.centre)(h)
        e = jax.vmap(self.edge)(h)
        m = jax.nn.gelu(c[:, None] + e[idx] - e[:, None])
        return jax.vmap(self.norm)(m.max(1))


class PartNet(eqx.Module):
    convs: list
    mix: eqx.nn.Linear
    head: eqx.nn.MLP

    def __init__(self, key, widths=(24, 32)):
        ks = jr.split(key, len(widths) + 2)
        dims = (4,) + widths
        self.convs = [EdgeConv(i, o, k) for i, o, k in zip(dims[:-1], dims[1:], ks)]
        self.mix = eqx.nn.Linear(sum(widths), 64, key=ks[-2])
        self.head = eqx.nn.MLP(sum(widths) + 64, PARTS, 64, 2, key=ks[-1])

    def __call__(self, pts, idx):
        h, feats = pts, []
        for conv in self.convs:
            h = conv(h, idx)
            feats.append(h)
        local = jnp.concatenate(feats, -1)
        glob = jax.vmap(self.mix)(local).max(0)
        full = jnp.concatenate([local, jnp.broadcast_to(glob, (local.shape[0], glob.shape[0]))], -1)
        return jax.vmap(self.head)(full)


class Batch(NamedTuple):
    pts: jax.Array
    part: jax.Array


@partial(jax.jit, static_argnames="train")
def fetch(scans, parts, key, train=True):
    k1, k2, k3 = jr.split(key, 3)
    rows = jr.randint(k1, (BATCH,), 0, scans.shape[0])
    pts = scans[rows]
    if train:
        th = jr.uniform(k2, (BATCH,), maxval=2 * jnp.pi)
        c, s, o, l = jnp.cos(th), jnp.sin(th), jnp.zeros_like(th), jnp.ones_like(th)
        rot = jnp.stack([c, -s, o, s, c, o, o, o, l], -1).reshape(BATCH, 3, 3)
        xyz = jnp.einsum("bnc,bdc->bnd", pts[..., :3], rot) + 0.01 * jr.normal(k3, (BATCH, N_POINTS, 3))
        pts = jnp.concatenate([xyz, pts[..., 3:]], -1)
    return Batch(pts, parts[rows])


def loss_fn(net, batch):
    idx = neighbours(batch.pts[..., :3])
    logits = jax.vmap(net)(batch.pts, idx)
    ce = optax.softmax_cross_entropy_with_integer_labels(logits, batch.part)
    return ce.mean(), (logits.argmax(-1) == batch.part).mean()


@eqx.filter_jit
def compute_grads(net, batch):
    return eqx.filter_value_and_grad(loss_fn, has_aux=True)(net, batch)


@eqx.filter_jit(donate="all")
def apply_grads(grads, net, opt_state):
    updates, opt_state = optimiser.update(grads, opt_state, eqx.filter(net, eqx.is_inexact_array))
    return eqx.apply_updates(net, updates), opt_state


@eqx.filter_jit
def accuracy(net, batch):
    return loss_fn(net, batch)[1]


optimiser = optax.chain(
    optax.clip_by_global_norm(5.0),
    optax.adamw(optax.exponential_decay(3e-3, 500, 0.8), weight_decay=1e-3),
)


def main(steps):
    scans, parts = build_scans(N_CLOUDS, seed=0)
    val_scans, val_parts = map(jnp.asarray, build_scans(256, seed=1))
    scans, parts = jnp.asarray(scans), jnp.asarray(parts)
    net = PartNet(jr.key(0))
    opt_state = optimiser.init(eqx.filter(net, eqx.is_inexact_array))
    keys = jr.split(jr.key(7), 1024)
    keys = [k for k in keys]
    started = 0.0
    for it in range(-SKIP, steps):
        if it == 0:
            jax.block_until_ready(eqx.filter(net, eqx.is_array))
            started = time.perf_counter()
        batch = fetch(scans, parts, keys[it % 1024])
        (loss, acc), grads = compute_grads(net, batch)
        net, opt_state = apply_grads(grads, net, opt_state)
        if it % 40 == 0:
            print(f"it {it:5d} loss {loss:.3f} acc {acc:.3f}", flush=True)
        if it > 0 and it % 500 == 0:
            val = fetch(val_scans, val_parts, keys[0], train=False)
            print(f"   val acc {accuracy(net, val):.3f}", flush=True)
    jax.block_until_ready(eqx.filter(net, eqx.is_array))
    print(f"done {steps} steps in {time.perf_counter() - started:.3f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 6000)
