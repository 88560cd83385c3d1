"""Restoring punctuation and capitals in transcribed speech, byte level, flax linen TrainState.

usage: python repunct.py [STEPS]
"""
import os
import queue
import sys
import threading
import time
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training import train_state

LABELS = ["", ",", ".", "?", "!", ":", "^", "^,"]  # ^ = next letter is a capital
SEQ = 256
BATCH = 24
VOCAB = 32


def build_corpus(n_chars=600_000, seed=11):
    """Babble of Zipf-distributed made-up words, with marks whose place depends on the words."""
    rng = np.random.default_rng(seed)
    words = ["".join(chr(97 + c) for c in rng.integers(0, 26, rng.integers(2, 9))) for _ in range(4000)]
    freq = 1.0 / np.arange(1, 4001)
    ids = rng.choice(4000, size=n_chars // 5, p=freq / freq.sum())
    text = " ".join(words[i] for i in ids)[:n_chars]
    chars = np.frombuffer(text.encode(), np.uint8).astype(np.int32)
    tokens = np.where(chars == 32, 1, chars - 97 + 2).astype(np.int32)
    ends = np.flatnonzero(tokens == 1)
    labels = np.zeros(len(tokens), np.int32)
    labels[ends] = (tokens[ends - 1] * 5 + tokens[np.minimum(ends + 1, len(tokens) - 1)]) % len(LABELS)
    return tokens, labels


class Batches:
    """Random crops; a few characters are blanked, as a speech recogniser would."""

    def __init__(self, tokens, labels, seed=0):
        self.tokens, self.labels = tokens, labels
        self.rng = np.random.default_rng(seed)

    def crop(self):
        at = self.rng.integers(0, len(self.tokens) - SEQ, BATCH)
        idx = at[:, None] + np.arange(SEQ)
        return self.tokens[idx], self.labels[idx]

    def blank(self, x):
        return np.where(self.rng.random(x.shape) < 0.04, 0, x).astype(np.int32)

    def __iter__(self):
        while True:
            x, y = self.crop()
            yield self.blank(x), y


def prefetch(source, depth=3):
    q = queue.Queue(depth)

    def pump():
        for item in source:
            q.put(jax.device_put(item))

    threading.Thread(target=pump, daemon=True).start()
    while True:
        yield q.get()


class ShiftBlock(nn.Module):
    dim: int
    reach: int

    @nn.compact
    def __call__(self, x):
        h = nn.LayerNorm()(x)
        r = self.reach
        left = jnp.pad(h, ((0, 0), (r, 0), (0, 0)))[:, :-r]
        right = jnp.pad(h, ((0, 0), (0, r), (0, 0)))[:, r:]
        h = nn.Dense(2 * self.dim)(jnp.concatenate([left, h, right], -1))
        a, b = jnp.split(h, 2, -1)
        return x + nn.Dense(self.dim)(a * nn.sigmoid(b))


class Restorer(nn.Module):
    dim: int = 96

    @nn.compact
    def __call__(self, tokens, rarity):
        x = nn.Embed(VOCAB, self.dim)(tokens)
        x = x + nn.Dense(self.dim)(rarity[..., None])
        for reach in (1, 2, 4, 8):
            x = ShiftBlock(self.dim, reach)(x)
        return nn.Dense(len(LABELS))(nn.LayerNorm()(x))


class State(train_state.TrainState):
    ema: Any = None


def rarity_of(tokens):
    """How unusual is each character within its own sentence?"""
    hist = jax.nn.one_hot(tokens, VOCAB).sum(1)
    seen = jnp.take_along_axis(hist, tokens, axis=1)
    return -jnp.log(seen / tokens.shape[1])


def loss_of(params, apply_fn, tokens, labels):
    logits = apply_fn({"params": params}, tokens, rarity_of(tokens))
    weight = jnp.where(labels > 0, 3.0, 0.3)
    ce = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    return (ce * weight).mean()


def train_step(state, tokens, labels):
    loss, grads = jax.value_and_grad(loss_of)(state.params, state.apply_fn, tokens, labels)
    state = state.apply_gradients(grads=grads)
    ema = optax.incremental_update(state.params, state.ema, 0.005)
    return state.replace(ema=ema), loss


@jax.jit
def accuracy(params, apply_fn_tokens, labels):
    logits = Restorer().apply({"params": params}, apply_fn_tokens, rarity_of(apply_fn_tokens))
    hit = (logits.argmax(-1) == labels) & (labels > 0)
    return hit.sum() / jnp.maximum((labels > 0).sum(), 1)


def main(steps):
    tokens, labels = build_corpus()
    held = len(tokens) - 20_000
    feed = prefetch(Batches(tokens[:held], labels[:held]))
    test_x, test_y = jax.device_put(Batches(tokens[held:], labels[held:], seed=99).crop())

    model = Restorer()
    params = model.init(jax.random.key(1), test_x, jnp.zeros(test_x.shape))["params"]
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(8e-4))
    state = State.create(apply_fn=model.apply, params=params, tx=tx, ema=jax.tree.map(jnp.copy, params))
    step_fn = jax.jit(train_step, donate_argnums=0)

    for _ in range(4):
        state, loss = step_fn(state, *next(feed))
    jax.block_until_ready(state)
    start = time.perf_counter()
    for i in range(1, steps + 1):
        x, y = next(feed)
        state, loss = step_fn(state, x, y)
        if i % 200 == 0:
            acc = accuracy(state.ema, test_x, test_y)
            print(f"[{i}] loss {float(loss):.3f}  recall {float(acc):.3f}", flush=True)
    jax.block_until_ready(state)
    print(f"done {steps} steps in {time.perf_counter() - start:.4f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 4000)
