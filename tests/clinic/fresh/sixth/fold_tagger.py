"""Secondary-structure tagging of protein chains, flax.nnx, background batch maker."""
import os
import queue
import sys
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

AA = "-ACDEFGHIKLMNPQRSTVWY"
HYDRO = dict(zip(AA, [0, 1.8, 2.5, -3.5, -3.5, 2.8, -.4, -3.2, 4.5, -3.9, 3.8, 1.9, -3.5, -1.6, -3.5, -4.5, -.8,
                      -.7, 4.2, -.9, -1.3]))
BATCH = 16
MAX_LEN = 96
DIM = 96
WINDOW = 9


def fake_chains(n=6000, seed=11):
    rng = np.random.default_rng(seed)
    letters = np.array(list(AA[1:]))
    lengths = rng.integers(30, MAX_LEN + 1, n)
    chains = ["".join(letters[rng.integers(0, 20, k)]) for k in lengths]
    return chains


LOOKUP = np.zeros(256, np.int32)
for _i, _c in enumerate(AA):
    LOOKUP[ord(_c)] = _i
HYDRO_BY_ID = np.array([HYDRO[c] for c in AA], np.float32)


def encode(chains):
    """chains -> padded ids, window-averaged hydropathy, labels (helix/strand/coil)."""
    width = MAX_LEN
    text = "".join(c.ljust(width, "-") for c in chains).encode()
    ids = LOOKUP[np.frombuffer(text, np.uint8)].reshape(len(chains), width)
    hyd = HYDRO_BY_ID[ids]
    cum = np.cumsum(np.pad(hyd, ((0, 0), (WINDOW // 2 + 1, WINDOW // 2))), axis=1, dtype=np.float32)
    smooth = (cum[:, WINDOW:] - cum[:, :-WINDOW]) / WINDOW
    labels = np.where(smooth > 0.4, 0, np.where(smooth < -1.2, 1, 2)).astype(np.int32)
    return {"ids": ids, "hyd": hyd, "labels": labels, "mask": (ids > 0).astype(np.float32)}


def batches(chains, seed=0):
    rng = np.random.default_rng(seed)
    while True:
        pick = rng.integers(0, len(chains), BATCH)
        yield encode([chains[i] for i in pick])


def background(gen, depth=6):
    q = queue.Queue(depth)

    def fill():
        for item in gen:
            q.put(item)

    threading.Thread(target=fill, daemon=True).start()
    while True:
        yield q.get()


class Block(nnx.Module):
    def __init__(self, dim, heads, rngs):
        self.heads = heads
        self.n1, self.n2 = nnx.LayerNorm(dim, rngs=rngs), nnx.LayerNorm(dim, rngs=rngs)
        self.qkv = nnx.Linear(dim, 3 * dim, rngs=rngs)
        self.out = nnx.Linear(dim, dim, rngs=rngs)
        self.up, self.down = nnx.Linear(dim, 3 * dim, rngs=rngs), nnx.Linear(3 * dim, dim, rngs=rngs)

    def __call__(self, x, mask):
        b, l, d = x.shape
        q, k, v = jnp.split(self.qkv(self.n1(x)).reshape(b, l, self.heads, -1), 3, axis=-1)
        att = jnp.einsum("blhc,bmhc->bhlm", q, k) * (d // self.heads) ** -0.5
        att = jax.nn.softmax(att - 1e9 * (1 - mask[:, None, None, :]), axis=-1)
        x = x + self.out(jnp.einsum("bhlm,bmhc->blhc", att, v).reshape(b, l, d))
        return x + self.down(jax.nn.gelu(self.up(self.n2(x))))


class Tagger(nnx.Module):
    def __init__(self, rngs):
        self.tok = nnx.Embed(len(AA), DIM, rngs=rngs)
        self.pos = nnx.Embed(MAX_LEN, DIM, rngs=rngs)
        self.hyd = nnx.Linear(1, DIM, rngs=rngs)
        self.blocks = nnx.List([Block(DIM, 4, rngs) for _ in range(2)])
        self.head = nnx.Linear(DIM, 3, rngs=rngs)

    def __call__(self, ids, hyd, mask):
        x = self.tok(ids) + self.pos(jnp.arange(ids.shape[1])) + self.hyd(hyd[..., None])
        for block in self.blocks:
            x = block(x, mask)
        return self.head(x)


def loss_fn(model, batch):
    logits = model(batch["ids"], batch["hyd"], batch["mask"])
    ce = optax.softmax_cross_entropy_with_integer_labels(logits, batch["labels"])
    return (ce * batch["mask"]).sum() / batch["mask"].sum()


@jax.jit
def evaluate(graph_and_state, batch):
    model = nnx.merge(*graph_and_state)
    hit = model(batch["ids"], batch["hyd"], batch["mask"]).argmax(-1) == batch["labels"]
    return (hit * batch["mask"]).sum() / batch["mask"].sum()


def main(steps):
    chains = fake_chains()
    held_out = jax.device_put(encode(chains[:64]))
    chains = chains[64:]
    model = Tagger(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adamw(1e-3), wrt=nnx.Param)
    graphdef, state = nnx.split((model, optimizer))

    def step(state, batch):
        model, optimizer = nnx.merge(graphdef, state)
        loss, grads = nnx.value_and_grad(loss_fn)(model, batch)
        optimizer.update(model, grads)
        return nnx.state((model, optimizer)), loss

    step = jax.jit(step, donate_argnums=0)

    feed = background(batches(chains))
    for _ in range(8):
        state, loss = step(state, next(feed))
    jax.block_until_ready(state)
    t0 = time.perf_counter()
    for i in range(1, steps + 1):
        state, loss = step(state, next(feed))
        if i % 1000 == 0:
            model, _ = nnx.merge(graphdef, state)
            acc = evaluate(nnx.split(model), held_out)
            print(f"{i}: loss {float(loss):.3f} held-out acc {float(acc):.3f}", flush=True)
    jax.block_until_ready(state)
    print(f"done {steps} steps in {time.perf_counter() - t0:.4f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 8000)
