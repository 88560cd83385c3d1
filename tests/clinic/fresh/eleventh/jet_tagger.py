"""Top / W / QCD jet tagging with a small set transformer (Equinox).

Jets are clouds of up to 40 constituents; the network attends over them, pools
with learned seeds and classifies.  usage: python jet_tagger.py [STEPS]
"""
import dataclasses
import queue
import sys
import threading
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax


@dataclasses.dataclass(frozen=True)
class Config:
    batch: int = 32
    n_const: int = 40
    dim: int = 32
    heads: int = 4
    blocks: int = 2
    seeds: int = 2
    classes: int = 3
    drop_max: float = 0.15      # share of constituents dropped at the end of the ramp
    lr: float = 1e-3
    log_every: int = 50


def make_jets(n, cfg, seed):
    """Prongs in (eta, phi) with exponential pt spectra: 1 prong QCD, 2 W, 3 top."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, cfg.classes, n)
    mult = np.clip(rng.poisson(18 + 5 * label), 5, cfg.n_const)
    prongs = rng.normal(0, 0.3, (n, 3, 2))
    which = rng.integers(0, 1 << 20, (n, cfg.n_const)) % (label[:, None] + 1)
    axes = np.take_along_axis(prongs, which[..., None], axis=1)
    pos = axes + rng.normal(0, 0.06, axes.shape)
    pt = np.sort(rng.exponential(12.0, (n, cfg.n_const)) + 0.5, axis=1)[:, ::-1]
    mask = np.arange(cfg.n_const)[None] < mult[:, None]
    pt = np.where(mask, pt, 0.0)
    share = pt / pt.sum(1, keepdims=True)
    pos = pos - (pos * share[..., None]).sum(1, keepdims=True)
    dr = np.hypot(pos[..., 0], pos[..., 1])
    feats = np.stack([pos[..., 0], pos[..., 1], np.log(pt + 1e-3), np.log(share + 1e-5),
                      dr, share * dr], -1)
    return feats.astype(np.float32), mask, label.astype(np.int32)


class Block(eqx.Module):
    attn: eqx.nn.MultiheadAttention
    ff: eqx.nn.MLP
    n1: eqx.nn.LayerNorm
    n2: eqx.nn.LayerNorm

    def __init__(self, cfg, key):
        a, b = jax.random.split(key)
        self.attn = eqx.nn.MultiheadAttention(cfg.heads, cfg.dim, key=a)
        self.ff = eqx.nn.MLP(cfg.dim, cfg.dim, 2 * cfg.dim, 1, jax.nn.gelu, key=b)
        self.n1, self.n2 = eqx.nn.LayerNorm(cfg.dim), eqx.nn.LayerNorm(cfg.dim)

    def __call__(self, q, kv, mask):
        m = jnp.broadcast_to(mask[None], (q.shape[0], kv.shape[0]))
        h = jax.vmap(self.n1)(q + self.attn(q, kv, kv, mask=m))
        return jax.vmap(self.n2)(h + jax.vmap(self.ff)(h))


class SetTagger(eqx.Module):
    embed: eqx.nn.MLP
    blocks: list
    pool: Block
    seeds: jax.Array
    head: eqx.nn.Linear

    def __init__(self, cfg, key):
        ks = jax.random.split(key, cfg.blocks + 4)
        self.embed = eqx.nn.MLP(6, cfg.dim, cfg.dim, 1, jax.nn.gelu, key=ks[0])
        self.blocks = [Block(cfg, k) for k in ks[4:]]
        self.pool = Block(cfg, ks[1])
        self.seeds = 0.3 * jax.random.normal(ks[2], (cfg.seeds, cfg.dim), jnp.float32)
        self.head = eqx.nn.Linear(cfg.seeds * cfg.dim, cfg.classes, key=ks[3])

    def __call__(self, x, mask):
        h = jax.vmap(self.embed)(x)
        for b in self.blocks:
            h = b(h, h, mask)
        return self.head(self.pool(self.seeds, h, mask).reshape(-1))


class JetStream:
    """Shuffled batches, made by a thread some batches ahead."""

    def __init__(self, arrays, cfg, seed=0, ahead=4):
        self.feats, self.mask, self.label = arrays
        self.cfg, self.rng = cfg, np.random.default_rng(seed)
        self.mean = self.feats[self.mask].mean(0)
        self.std = self.feats[self.mask].std(0) + 1e-6
        self.q = queue.Queue(ahead)
        threading.Thread(target=self._fill, daemon=True).start()

    def collate(self, idx):
        x = (self.feats[idx] - self.mean) / self.std
        return x, self.mask[idx], self.label[idx]

    def _fill(self):
        while True:
            order = self.rng.permutation(len(self.label))
            for i in range(0, len(order) - self.cfg.batch + 1, self.cfg.batch):
                self.q.put(self.collate(order[i:i + self.cfg.batch]))

    def __iter__(self):
        while True:
            yield self.q.get()


class Trainer:
    def __init__(self, cfg, steps):
        self.cfg, self.steps = cfg, steps
        self.params, self.static = eqx.partition(SetTagger(cfg, jax.random.key(1)), eqx.is_array)
        sched = optax.cosine_decay_schedule(cfg.lr, steps)
        self.tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(sched))
        self.opt = self.tx.init(self.params)
        self.key = jax.random.key(2)
        self.update = jax.jit(self._update, static_argnames="cfg", donate_argnums=(0, 1, 2))

    def _update(self, params, opt, key, batch, drop, cfg):
        x, mask, y = batch
        key, sub = jax.random.split(key)
        keep = mask & (jax.random.uniform(sub, mask.shape) >= drop)
        keep = keep.at[:, 0].set(True)

        def loss_fn(p):
            logits = jax.vmap(eqx.combine(p, self.static))(x, keep)
            nll = optax.softmax_cross_entropy_with_integer_labels(logits, y)
            return nll.mean(), (logits.argmax(-1) == y).mean()

        (loss, acc), g = jax.value_and_grad(loss_fn, has_aux=True)(params)
        upd, opt = self.tx.update(g, opt, params)
        return optax.apply_updates(params, upd), opt, key, loss, acc

    def fit(self, stream):
        cfg, skip = self.cfg, self.steps // 4
        for i, batch in zip(range(self.steps), stream):
            if i == skip:
                jax.block_until_ready(self.params)
                t0 = time.perf_counter()
            drop = np.float32(cfg.drop_max * i / self.steps)
            self.params, self.opt, self.key, loss, acc = self.update(
                self.params, self.opt, self.key, batch, drop, cfg)
            if i % cfg.log_every == 0:
                print(f"{i:6d} loss {float(loss):.4f} acc {float(acc):.3f}", flush=True)
        jax.block_until_ready(self.params)
        return self.steps - skip, time.perf_counter() - t0


if __name__ == "__main__":
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 4800
    cfg = Config()
    stream = JetStream(make_jets(8000, cfg, 0), cfg)
    n, secs = Trainer(cfg, steps).fit(stream)
    print(f"done {n} steps in {secs:.3f} s")
