"""Sentiment of synthetic reviews with a bidirectional GRU (dm-haiku)."""
import argparse
import os
import time

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax

p = argparse.ArgumentParser()
p.add_argument("steps", nargs="?", type=int, default=4000)
p.add_argument("--batch", type=int, default=96)
p.add_argument("--seq-len", type=int, default=40)
p.add_argument("--vocab", type=int, default=6000)
p.add_argument("--table-rows", type=int, default=6016, help="rows of the embedding table")
p.add_argument("--embed", type=int, default=64)
p.add_argument("--hidden", type=int, default=128)
p.add_argument("--classes", type=int, default=5)
p.add_argument("--lr", type=float, default=1e-3)
p.add_argument("--seed", type=int, default=17)
args = p.parse_args()


def make_reviews(n=20_000):
    """Zipf tokens; the stars follow from a hidden polarity of the words."""
    rng = np.random.default_rng(args.seed)
    ranks = np.arange(1, args.vocab)
    probs = 1.0 / (ranks + 20.0)
    tokens = rng.choice(ranks, size=(n, args.seq_len), p=probs / probs.sum()).astype(np.int32)
    lengths = rng.integers(10, args.seq_len + 1, size=n).astype(np.int32)
    live = np.arange(args.seq_len)[None] < lengths[:, None]
    tokens *= live
    polarity = rng.normal(size=args.vocab)
    score = (polarity[tokens] * live).sum(1) / np.sqrt(lengths)
    stars = np.digitize(score, np.quantile(score, np.linspace(0, 1, args.classes + 1)[1:-1]))
    return tokens, lengths, stars.astype(np.int32)


def pretrained_vectors():
    """Stands for a word2vec file."""
    rng = np.random.default_rng(args.seed + 1)
    vectors = rng.standard_normal((args.table_rows, args.embed)) * 0.1
    return vectors.astype(np.float32)


VECTORS = pretrained_vectors()


def reverse_by_length(x, lengths):
    """Reverse each row's first lengths[i] items, [T, B, ...]."""
    T = x.shape[0]
    t = jnp.arange(T)[:, None]
    idx = jnp.where(t < lengths[None], lengths[None] - 1 - t, t)
    return jnp.take_along_axis(x, idx[..., None], axis=0)


def forward(tokens, lengths):
    table = hk.get_parameter("table", VECTORS.shape, VECTORS.dtype,
                             init=lambda shape, dtype: jnp.asarray(VECTORS))
    x = jnp.swapaxes(table[tokens], 0, 1)                       # [T, B, E]
    fw = hk.GRU(args.hidden, name="gru_fw")
    bw = hk.GRU(args.hidden, name="gru_bw")
    B = tokens.shape[0]
    zero = jnp.zeros((B, args.hidden), x.dtype)
    out_f, _ = hk.dynamic_unroll(fw, x, zero)
    out_b, _ = hk.dynamic_unroll(bw, reverse_by_length(x, lengths), zero)
    live = (jnp.arange(x.shape[0])[:, None] < lengths[None])[..., None]
    feats = jnp.concatenate([out_f, out_b], -1)
    mean = jnp.sum(jnp.where(live, feats, 0), 0) / lengths[:, None].astype(x.dtype)
    top = jnp.max(jnp.where(live, feats, -10.0), 0)
    h = jax.nn.relu(hk.Linear(128)(jnp.concatenate([mean, top], -1)))
    return hk.Linear(args.classes)(h)


net = hk.without_apply_rng(hk.transform(forward))
schedule = optax.warmup_cosine_decay_schedule(0.0, args.lr, 200, 20_000)
tx = optax.chain(optax.clip_by_global_norm(5.0), optax.adam(schedule))


def loss_fn(params, tokens, lengths, stars):
    logits = net.apply(params, tokens, lengths)
    loss = optax.softmax_cross_entropy_with_integer_labels(logits, stars).mean()
    return loss, jnp.mean(jnp.argmax(logits, -1) == stars)


def step(params, opt_state, tokens, lengths, stars):
    (loss, acc), grads = jax.value_and_grad(loss_fn, has_aux=True)(params, tokens, lengths, stars)
    updates, opt_state = tx.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss, acc


step = jax.jit(step, donate_argnums=(0, 1))
evaluate = jax.jit(lambda params, *batch: loss_fn(params, *batch)[1])

tokens, lengths, stars = make_reviews()
held_out = tuple(a[-256:] for a in (tokens, lengths, stars))
rng = np.random.default_rng(args.seed + 2)


def sample():
    rows = rng.integers(0, len(tokens) - 256, size=args.batch)
    return tokens[rows], lengths[rows], stars[rows]


params = net.init(jax.random.PRNGKey(args.seed), *sample()[:2])
opt_state = tx.init(params)
for _ in range(3):
    params, opt_state, loss, acc = step(params, opt_state, *sample())
evaluate(params, *held_out)
jax.block_until_ready(params)

start = time.perf_counter()
for it in range(args.steps):
    params, opt_state, loss, acc = step(params, opt_state, *sample())
    if it % 1000 == 999:
        print(f"{it + 1}: loss {float(loss):.3f}, held-out accuracy {float(evaluate(params, *held_out)):.3f}")
jax.block_until_ready((params, loss))
print(f"done {args.steps} steps in {time.perf_counter() - start:.4f} s")
