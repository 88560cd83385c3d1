"""A GRU language model over byte-pair tokens, with BPE dropout when encoding.

    python healthy.py [STEPS]
"""
import random
import sys
import time
from collections import Counter
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

BATCH = 32
SEQ_LEN = 64
VOCAB = 256
EMBED = 64
HIDDEN = 96
BPE_DROPOUT = 0.1
LOG_EVERY = 50
DEFAULT_STEPS = 12000


class State(NamedTuple):
    params: dict
    opt: optax.OptState


# ---- corpus and tokens


def make_corpus(rng, lexicon_size=1500, length=200_000):
    syllables = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]
    lexicon = ["".join(rng.choice(syllables) for _ in range(rng.randint(2, 4))) for _ in range(lexicon_size)]
    followers = {w: rng.sample(lexicon, 12) for w in lexicon}
    words, word = [], lexicon[0]
    for _ in range(length):
        words.append(word)
        word = rng.choice(followers[word]) if rng.random() < 0.8 else rng.choice(lexicon)
    return words


def merge_pair(symbols, pair):
    out, i = [], 0
    while i < len(symbols):
        if i + 1 < len(symbols) and (symbols[i], symbols[i + 1]) == pair:
            out.append(symbols[i] + symbols[i + 1])
            i += 2
        else:
            out.append(symbols[i])
            i += 1
    return out


def learn_bpe(words, vocab_size):
    counts = Counter(words)
    split = {w: list(w) for w in counts}
    alphabet = sorted({c for w in counts for c in w})
    ids = {" ": 0} | {c: i + 1 for i, c in enumerate(alphabet)}
    ranks = {}
    while len(ids) < vocab_size:
        pairs = Counter()
        for w, symbols in split.items():
            for pair in zip(symbols, symbols[1:]):
                pairs[pair] += counts[w]
        if not pairs:
            break
        best = pairs.most_common(1)[0][0]
        ranks[best] = len(ranks)
        ids.setdefault(best[0] + best[1], len(ids))
        split = {w: merge_pair(s, best) if len(s) > 1 else s for w, s in split.items()}
    return ranks, ids


def encode_word(word, ranks, ids, rng):
    symbols = list(word)
    while len(symbols) > 1:
        best, rank = None, len(ranks)
        for pair in zip(symbols, symbols[1:]):
            r = ranks.get(pair)
            if r is not None and r < rank and rng.random() >= BPE_DROPOUT:
                best, rank = pair, r
        if best is None:
            break
        symbols = merge_pair(symbols, best)
    return [ids[s] for s in symbols]


def make_batch(words, ranks, ids, rng, length):
    rows = np.empty((BATCH, length + 1), np.int32)
    for row in rows:
        at = rng.randrange(len(words) - length - 2)
        tokens = []
        while len(tokens) <= length:
            tokens += encode_word(words[at], ranks, ids, rng)
            tokens.append(0)
            at += 1
        row[:] = tokens[: length + 1]
    return rows


# ---- model


def init(key):
    k = jax.random.split(key, 4)
    return {
        "embed": jax.random.normal(k[0], (VOCAB, EMBED)) * 0.1,
        "wx": jax.random.normal(k[1], (EMBED, 3 * HIDDEN)) / EMBED**0.5,
        "wh": jax.random.normal(k[2], (HIDDEN, 3 * HIDDEN)) / HIDDEN**0.5,
        "b": jnp.zeros((3 * HIDDEN,)),
        "out": jax.random.normal(k[3], (HIDDEN, VOCAB)) / HIDDEN**0.5,
        "out_b": jnp.zeros((VOCAB,)),
    }


def gru(params, tokens):
    gates_x = params["embed"][tokens] @ params["wx"] + params["b"]

    def cell(h, gx):
        gh = h @ params["wh"]
        rx, zx, nx = jnp.split(gx, 3, axis=-1)
        rh, zh, nh = jnp.split(gh, 3, axis=-1)
        r = jax.nn.sigmoid(rx + rh)
        z = jax.nn.sigmoid(zx + zh)
        n = jnp.tanh(nx + r * nh)
        h = (1.0 - z) * n + z * h
        return h, h

    h0 = jnp.zeros((tokens.shape[0], HIDDEN))
    _, hs = jax.lax.scan(cell, h0, gates_x.swapaxes(0, 1))
    return hs.swapaxes(0, 1)


def loss_fn(params, rows):
    hs = gru(params, rows[:, :-1])
    logits = hs @ params["out"] + params["out_b"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, rows[:, 1:]).mean()


tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(3e-3))


@partial(jax.jit, donate_argnums=0)
def train_step(state, rows):
    loss, grads = jax.value_and_grad(loss_fn)(state.params, rows)
    updates, opt = tx.update(grads, state.opt, state.params)
    return State(optax.apply_updates(state.params, updates), opt), loss


def run(steps):
    rng = random.Random(0)
    words = make_corpus(rng)
    ranks, ids = learn_bpe(words, VOCAB)
    params = init(jax.random.key(0))
    state = State(params, tx.init(params))

    start = None
    rows = make_batch(words, ranks, ids, rng, SEQ_LEN)
    for step in range(1, steps + 11):
        state, loss = train_step(state, rows)
        rows = make_batch(words, ranks, ids, rng, SEQ_LEN)
        if step % LOG_EVERY == 0:
            print(f"[{step}] nll {float(loss):.3f}", flush=True)
        if step == 10:
            jax.block_until_ready(state)
            start = time.perf_counter()
    jax.block_until_ready(state)
    print(f"done {steps} steps in {time.perf_counter() - start:.2f} s")


if __name__ == "__main__":
    run(int(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_STEPS)
