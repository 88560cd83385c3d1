"""Small causal LM on a toy corpus of clinical-ish notes; several notes packed per row."""
import sys
import time
from functools import lru_cache, partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training import train_state

SEQ, ROWS = 128, 8
VOCAB = 2048
WIDTH, DEPTH, HEADS = 128, 3, 4
EOS = 1


# ---------------------------------------------------------------- tokenizer
def make_corpus(rng, n_docs=1500, n_words=1800):
    letters = list("abcdefghijklmnoprstuvwz")
    words = ["".join(rng.choice(letters, rng.integers(4, 15))) for _ in range(n_words)]
    prob = 1.0 / np.arange(3, n_words + 3)
    prob /= prob.sum()
    docs = []
    for _ in range(n_docs):
        n = int(rng.integers(3, 14))
        docs.append(" ".join(words[i] for i in rng.choice(n_words, n, p=prob)))
    return docs


class PairMerger:
    """byte-pair encoder, merges in the order in which they were found"""

    def __init__(self, docs, n_merges=900):
        counts = {}
        for d in docs[:600]:
            for a, b in zip(d, d[1:]):
                if " " not in (a, b):
                    counts[a + b] = counts.get(a + b, 0) + 1
        ranked = sorted(counts, key=counts.get, reverse=True)[:n_merges]
        self.rank = {p: i for i, p in enumerate(ranked)}
        chars = sorted(set("".join(docs)))
        self.ids = {s: i + 2 for i, s in enumerate(chars + ranked)}

    @lru_cache(maxsize=None)
    def word(self, w):
        parts = list(w)
        while len(parts) > 1:
            best = min(range(len(parts) - 1),
                       key=lambda i: self.rank.get(parts[i] + parts[i + 1], 1 << 30))
            if parts[best] + parts[best + 1] not in self.rank:
                break
            parts[best:best + 2] = [parts[best] + parts[best + 1]]
        return tuple(self.ids[p] for p in parts)

    def encode(self, doc):
        out = []
        for w in doc.split():
            out.extend(self.word(w))
        return out + [EOS]


def packed_rows(docs, tok, rng):
    """endless: (tokens, segment ids), each SEQ long, 0 = padding"""
    row, seg, k = [], [], 0
    while True:
        ids = tok.encode(docs[int(rng.integers(len(docs)))])[:SEQ]
        if len(row) + len(ids) > SEQ:
            pad = SEQ - len(row)
            yield np.array(row + [0] * pad, np.int32), np.array(seg + [0] * pad, np.int32)
            row, seg, k = [], [], 0
        k += 1
        row += ids
        seg += [k] * len(ids)


def batches(docs, tok, rng):
    rows = packed_rows(docs, tok, rng)
    while True:
        toks, segs = zip(*(next(rows) for _ in range(ROWS)))
        yield np.stack(toks), np.stack(segs)


# -------------------------------------------------------------------- model
def sinusoid(n, d):
    ang = np.arange(n)[:, None] / 10000 ** (np.arange(0, d, 2) / d)
    return jnp.asarray(np.concatenate([np.sin(ang), np.cos(ang)], -1))


class Block(nn.Module):
    @nn.compact
    def __call__(self, x, mask):
        h = nn.LayerNorm()(x)
        x = x + nn.MultiHeadDotProductAttention(HEADS)(h, h, mask=mask)
        h = nn.gelu(nn.Dense(4 * WIDTH)(nn.LayerNorm()(x)))
        return x + nn.Dense(WIDTH)(h)


class NoteLM(nn.Module):
    @nn.compact
    def __call__(self, toks, segs):
        embed = nn.Embed(VOCAB, WIDTH)
        x = embed(toks) * WIDTH ** 0.5 + sinusoid(SEQ, WIDTH)
        same = (segs[:, None, :, None] == segs[:, None, None, :]) & (segs > 0)[:, None, None, :]
        mask = same & jnp.tril(jnp.ones((SEQ, SEQ), bool))
        for _ in range(DEPTH):
            x = Block()(x, mask)
        return embed.attend(nn.LayerNorm()(x))


@partial(jax.jit, donate_argnums=0)
def update(state, toks, segs):
    def objective(params):
        logits = state.apply_fn(params, toks, segs)[:, :-1]
        target = toks[:, 1:]
        keep = (segs[:, 1:] == segs[:, :-1]) & (segs[:, 1:] > 0)
        nll = optax.softmax_cross_entropy_with_integer_labels(logits, target)
        return (nll * keep).sum() / keep.sum()

    loss, grads = jax.value_and_grad(objective)(state.params)
    return state.apply_gradients(grads=grads), loss


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
    rng = np.random.default_rng(11)
    docs = make_corpus(rng)
    tok = PairMerger(docs)
    stream = batches(docs, tok, rng)
    epoch = [next(stream) for _ in range(150)]

    model = NoteLM()
    params = model.init(jax.random.key(0), *epoch[0])
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(3e-4))
    state = train_state.TrainState.create(apply_fn=model.apply, params=params, tx=tx)

    for i in range(3):
        state, loss = update(state, *epoch[i])
    jax.block_until_ready(loss)

    t0 = time.perf_counter()
    for i in range(steps):
        toks, segs = epoch[i % len(epoch)]
        state, loss = update(state, toks, segs)
        if i % 500 == 499:
            print(f"step {i + 1} loss {float(loss):.3f}", flush=True)
    jax.block_until_ready((state, loss))
    print(f"done {steps} steps in {time.perf_counter() - t0:.4f} s")


if __name__ == "__main__":
    main()
