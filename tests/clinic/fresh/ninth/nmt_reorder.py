"""Toy machine translation: reverse/relabel a synthetic language with a small
encoder-decoder transformer (flax.linen). Batches are bucketed by length."""
import queue
import random
import sys
import threading
import time
from dataclasses import dataclass

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training import train_state


@dataclass(frozen=True)
class Config:
    vocab: int = 1000
    dim: int = 64
    heads: int = 4
    layers: int = 1
    mlp: int = 192
    batch: int = 12
    dropout: float = 0.1
    buckets: tuple = (16, 24)
    sentences: int = 30_000
    peak_lr: float = 1e-3
    warm: int = 5
    log_every: int = 50


CFG = Config()
PAD, BOS, EOS = 0, 1, 2


def make_corpus(n, seed=0):
    """A 'source' sentence has a verb at the end, its translation at the front."""
    rng = random.Random(seed)
    pairs = []
    for _ in range(n):
        size = rng.randint(6, 22)
        src = [3 + min(int(rng.expovariate(1 / 90)), CFG.vocab - 4) for _ in range(size)]
        tgt = [src[-1]] + [3 + (w * 7) % (CFG.vocab - 3) for w in src[:-1]]
        pairs.append((src, tgt))
    return pairs


def pad(rows, width):
    out = np.zeros((len(rows), width), np.int32)
    for i, r in enumerate(rows):
        out[i, : len(r)] = r
    return out


class Batches:
    """Endless bucketed batches; sentences near each other in length go together."""

    def __init__(self, corpus, batch, seed=1):
        self.rng = random.Random(seed)
        self.batch = batch
        self.corpus = corpus
        self.pools = {b: [] for b in CFG.buckets}
        for s, t in corpus:
            self.pools[self.bucket(len(s))].append((s, t))

    def bucket(self, n):
        return next(b for b in CFG.buckets if n + 2 <= b)

    def draw(self):
        width = self.rng.choice(CFG.buckets)
        return self.rng.sample(self.pools[width], self.batch), width

    def __iter__(self):
        while True:
            rows, width = self.draw()
            src = pad([s + [EOS] for s, _ in rows], width)
            dec_in = pad([[BOS] + t for _, t in rows], width)
            dec_out = pad([t + [EOS] for _, t in rows], width)
            yield src, dec_in, dec_out


def prefetch(it, depth=8):
    q = queue.Queue(depth)

    def work():
        for item in it:
            q.put(item)

    threading.Thread(target=work, daemon=True).start()
    while True:
        yield q.get()


def sinusoids(length, dim):
    pos = np.arange(length)[:, None]
    freq = np.exp(-np.log(10000.0) * np.arange(0, dim, 2) / dim)[None]
    table = np.concatenate([np.sin(pos * freq), np.cos(pos * freq)], axis=1)
    return table.astype(np.float32)


class Block(nn.Module):
    cross: bool
    dropout: float

    @nn.compact
    def __call__(self, x, mask, memory=None, memory_mask=None, train=True):
        drop = nn.Dropout(self.dropout, deterministic=not train)
        h = nn.LayerNorm()(x)
        x = x + drop(nn.MultiHeadDotProductAttention(CFG.heads)(h, h, mask=mask))
        if self.cross:
            h = nn.LayerNorm()(x)
            x = x + drop(nn.MultiHeadDotProductAttention(CFG.heads)(h, memory, mask=memory_mask))
        h = nn.Dense(CFG.mlp)(nn.LayerNorm()(x))
        return x + drop(nn.Dense(x.shape[-1])(nn.gelu(h)))


class Translator(nn.Module):
    dropout: float = CFG.dropout

    @nn.compact
    def __call__(self, src, dec_in, train=True):
        embed = nn.Embed(CFG.vocab, CFG.dim)
        table = sinusoids(max(CFG.buckets), CFG.dim)
        enc_mask = nn.make_attention_mask(src > 0, src > 0)
        x = embed(src) + table[: src.shape[1]]
        for _ in range(CFG.layers):
            x = Block(False, self.dropout)(x, enc_mask, train=train)
        memory = nn.LayerNorm()(x)
        y = embed(dec_in) + table[: dec_in.shape[1]]
        causal = nn.make_causal_mask(dec_in)
        cross = nn.make_attention_mask(dec_in > 0, src > 0)
        for _ in range(CFG.layers):
            y = Block(True, self.dropout)(y, causal, memory, cross, train=train)
        return embed.attend(nn.LayerNorm()(y))


def train_step(state, key, batch):
    src, dec_in, dec_out = batch
    key = jax.random.fold_in(key, state.step)

    def loss_fn(params):
        logits = state.apply_fn({"params": params}, src, dec_in, rngs={"dropout": key})
        nll = optax.softmax_cross_entropy_with_integer_labels(logits, dec_out)
        w = dec_out > 0
        return (nll * w).sum() / w.sum()

    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    return state.apply_gradients(grads=grads), loss


train_step = jax.jit(train_step, donate_argnums=0)


def main(steps):
    data = prefetch(iter(Batches(make_corpus(CFG.sentences), CFG.batch)))
    model = Translator()
    first = next(data)
    params = jax.jit(model.init)({"params": jax.random.key(0), "dropout": jax.random.key(1)}, *first[:2])["params"]
    schedule = optax.warmup_cosine_decay_schedule(0.0, CFG.peak_lr, 100, 20_000)
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule))
    state = train_state.TrainState.create(apply_fn=model.apply, params=params, tx=tx)
    key = jax.random.key(2)

    for i in range(CFG.warm):
        for width in CFG.buckets:
            dummy = np.ones((CFG.batch, width), np.int32)
            state, loss = train_step(state, key, (dummy, dummy, dummy))
    jax.block_until_ready(loss)

    t0 = time.perf_counter()
    for step in range(1, steps + 1):
        state, loss = train_step(state, key, next(data))
        if step % CFG.log_every == 0:
            print(f"step {step:5d}  loss {float(loss):.3f}", flush=True)
    jax.block_until_ready(state.params)
    print(f"done {steps} steps in {time.perf_counter() - t0:.3f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3000)
