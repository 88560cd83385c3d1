"""Biaffine dependency parser on a toy treebank (flax linen, Trainer object)."""
import sys
import time

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct

WORDS, TAGS, RELS = 3000, 17, 24
LONGEST = 32
BUCKETS = (16, 24, 32)
BATCH = 24


# ------------------------------------------------------------------- treebank
def make_sentence(rng):
    """Projective tree over random words; word id hints at tag and relation."""
    n = int(rng.integers(7, LONGEST))
    words = rng.integers(4, WORDS, n)
    heads = np.zeros(n, np.int32)

    def attach(lo, hi, parent):
        if lo >= hi:
            return
        root = lo + int(words[lo:hi].argmax())
        heads[root] = parent
        attach(lo, root, root + 1)
        attach(root + 1, hi, root + 1)

    attach(0, n, 0)
    return words.astype(np.int32), (words % TAGS).astype(np.int32), heads, (words % RELS).astype(np.int32)


class Treebank:
    def __init__(self, size, seed):
        self.rng = np.random.default_rng(seed)
        sentences = [make_sentence(self.rng) for _ in range(size)]
        self.tables, counts = [], []
        for low, high in zip((0,) + BUCKETS[:-1], BUCKETS):
            inside = [s for s in sentences if low < len(s[0]) + 1 <= high]
            counts.append(len(inside))
            self.tables.append(self.pad(inside, high))
        self.share = np.array(counts) / sum(counts)

    @staticmethod
    def pad(sentences, width):
        table = {k: np.zeros((len(sentences), width), np.int32) for k in ("word", "tag", "head", "rel", "mask")}
        for i, (w, t, h, r) in enumerate(sentences):
            n = len(w)
            table["word"][i, 0] = 1            # root symbol
            table["word"][i, 1:n + 1] = w
            table["tag"][i, 1:n + 1] = t
            table["head"][i, 1:n + 1] = h
            table["rel"][i, 1:n + 1] = r
            table["mask"][i, 1:n + 1] = 1
        return table

    def stream(self):
        while True:
            table = self.tables[self.rng.choice(len(BUCKETS), p=self.share)]
            rows = self.rng.integers(0, len(table["word"]), BATCH)
            yield {k: v[rows] for k, v in table.items()}


# ---------------------------------------------------------------------- model
class Layer(nn.Module):
    width: int
    heads: int = 4

    @nn.compact
    def __call__(self, x, mask):
        h = nn.LayerNorm()(x)
        x = x + nn.MultiHeadDotProductAttention(self.heads)(h, mask=mask)
        h = nn.LayerNorm()(x)
        return x + nn.Dense(self.width)(nn.gelu(nn.Dense(2 * self.width)(h)))


class Parser(nn.Module):
    width: int = 64
    layers: int = 2
    arc: int = 48
    label: int = 24

    @nn.compact
    def __call__(self, batch):
        length = batch["word"].shape[1]
        x = nn.Embed(WORDS, self.width)(batch["word"]) + nn.Embed(TAGS, self.width)(batch["tag"])
        x = x + self.param("place", nn.initializers.normal(0.02), (LONGEST, self.width))[:length]
        seen = jnp.asarray(batch["mask"]).at[:, 0].set(1)
        for _ in range(self.layers):
            x = Layer(self.width)(x, (seen[:, None, None] * seen[:, None, :, None]).astype(bool))
        x = nn.LayerNorm()(x)
        dep, head = (nn.relu(nn.Dense(self.arc)(x)) for _ in range(2))
        weight = self.param("arc", nn.initializers.orthogonal(), (self.arc, self.arc))
        arcs = jnp.einsum("bia,ac,bjc->bij", dep, weight, head)
        arcs = jnp.where(seen[:, None], arcs, -1e9)
        dep, head = (nn.relu(nn.Dense(self.label)(x)) for _ in range(2))
        head = jnp.take_along_axis(head, batch["head"][..., None], 1)
        rel = self.param("rel", nn.initializers.normal(0.1), (RELS, self.label, self.label))
        return arcs, jnp.einsum("bia,rac,bic->bir", dep, rel, head)


def parse_loss(params, apply, batch):
    arcs, rels = apply({"params": params}, batch)
    real = batch["mask"].astype(jnp.float32)
    xent = optax.softmax_cross_entropy_with_integer_labels
    both = xent(arcs, batch["head"]) + xent(rels, batch["rel"])
    right = (arcs.argmax(-1) == batch["head"]) * real
    return jnp.sum(both * real) / real.sum(), right.sum() / real.sum()


@struct.dataclass
class Fit:
    params: dict
    opt: optax.OptState
    mean: dict


class Trainer:
    log_every = 50

    def __init__(self, model, bank, seed=0):
        self.stream = bank.stream()
        self.tx = optax.chain(optax.clip_by_global_norm(5.0), optax.adam(2e-3, b2=0.95))
        params = model.init(jax.random.PRNGKey(seed), next(self.stream))["params"]
        self.fit = Fit(params, self.tx.init(params), jax.tree.map(jnp.copy, params))

        def gradients(params, batch):
            return jax.value_and_grad(parse_loss, has_aux=True)(params, model.apply, batch)

        def apply_gradients(fit, grads):
            updates, opt = self.tx.update(grads, fit.opt, fit.params)
            params = optax.apply_updates(fit.params, updates)
            mean = jax.tree.map(lambda m, p: 0.99 * m + 0.01 * p, fit.mean, params)
            return Fit(params, opt, mean)

        self.gradients = jax.jit(gradients)
        self.apply_gradients = jax.jit(apply_gradients, donate_argnums=0)
        for table in bank.tables:              # each width once, before the clock
            self.gradients(params, {k: v[:BATCH] for k, v in table.items()})

    def train_one(self):
        batch = next(self.stream)
        (loss, uas), grads = self.gradients(self.fit.params, batch)
        self.fit = self.apply_gradients(self.fit, grads)
        return loss, uas

    def run(self, steps, warmup=5):
        for _ in range(warmup):
            self.train_one()
        jax.block_until_ready(self.fit)
        begin = time.perf_counter()
        for n in range(1, steps + 1):
            loss, uas = self.train_one()
            if n % self.log_every == 0:
                print(f"[{n}] loss {float(loss):.3f}  uas {float(uas):.3f}")
        jax.block_until_ready(self.fit)
        return time.perf_counter() - begin


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
    trainer = Trainer(Parser(), Treebank(3000, seed=4))
    print(f"done {count} steps in {trainer.run(count):.3f} s")
