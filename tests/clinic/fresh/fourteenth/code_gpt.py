"""code_gpt: a small decoder-only transformer on made-up source code.

A toy grammar writes functions in an invented language; documents are packed in rows,
attention stays inside a document, and large batches are built by accumulation.

    python code_gpt.py [STEPS]
"""
import os
import random
import re
import sys
import tempfile
import time
from dataclasses import asdict, dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax


@dataclass(frozen=True)
class Config:
    seq_len: int = 48
    width: int = 48
    heads: int = 4
    layers: int = 2
    micro_batch: int = 32
    rows_per_update: int = 64
    documents: int = 6000
    lr: float = 2e-3
    warmup_steps: int = 8
    log_every: int = 100
    eval_every: int = 400
    seed: int = 11

    @property
    def accum(self):
        return self.rows_per_update // self.micro_batch


# --------------------------------------------------------------- the language
NAMES = [a + b for a in ("get_", "set_", "num_", "is_", "max_", "") for b in
         ("item", "row", "user", "path", "node", "key", "total", "index", "buf", "line")]
OPS = ["+", "-", "*", "//", "%"]
CMPS = ["<", ">", "==", "!=", "<=", ">="]
WORDS = ["def", "return", "if", "else", "for", "in", "range", "while", "len", "None"]
PUNCT = ["(", ")", "[", "]", ":", ",", "=", "<nl>", "<in>", "<out>"]
VOCAB = ["<pad>", "<bos>", "<eos>"] + WORDS + PUNCT + OPS + CMPS + [str(i) for i in range(20)] + NAMES
TOKEN_ID = {t: i for i, t in enumerate(VOCAB)}
LEXER = re.compile(r"<nl>|<in>|<out>|[a-z_A-Z]+|\d+|//|[<>=!]=|[-+*%<>=()\[\]:,]")
PAD, BOS, EOS = 0, 1, 2


def expression(rng, scope, depth=0):
    roll = rng.random()
    if depth > 1 or roll < 0.35:
        return rng.choice(scope)
    if roll < 0.5:
        return str(rng.randrange(20))
    if roll < 0.6:
        return f"{rng.choice(scope)} [ {expression(rng, scope, depth + 1)} ]"
    return f"{expression(rng, scope, depth + 1)} {rng.choice(OPS)} {expression(rng, scope, depth + 1)}"


def statement(rng, scope, depth=0):
    roll = rng.random()
    if depth < 2 and roll < 0.2:
        body = statement(rng, scope, depth + 1)
        return f"if {rng.choice(scope)} {rng.choice(CMPS)} {expression(rng, scope, 1)} : <nl> <in> {body} <out>"
    if depth < 2 and roll < 0.4:
        var = rng.choice(NAMES)
        body = statement(rng, scope + [var], depth + 1)
        return f"for {var} in range ( {expression(rng, scope, 1)} ) : <nl> <in> {body} <out>"
    return f"{rng.choice(NAMES)} = {expression(rng, scope)} <nl>"


def write_source(rng):
    scope = rng.sample(NAMES, rng.randint(1, 3))
    body = " ".join(statement(rng, scope) for _ in range(rng.randint(1, 3)))
    return f"def {rng.choice(NAMES)} ( {' , '.join(scope)} ) : <nl> <in> {body} return {expression(rng, scope)} <nl> <out>"


def tokenize(source):
    return [BOS] + [TOKEN_ID[t] for t in LEXER.findall(source)] + [EOS]


@dataclass
class Document:
    source: str
    ids: np.ndarray


def write_corpus(n, seed):
    rng = random.Random(seed)
    sources = [write_source(rng) for _ in range(n)]
    return [Document(s, np.asarray(tokenize(s), np.int32)) for s in sources]


class PackedSampler:
    """Lays whole documents end to end in rows of seq_len + 1; segment 0 is padding."""

    def __init__(self, docs, cfg, seed):
        self.cfg, self.docs, self.rng = cfg, docs, np.random.default_rng(seed)
        self.rows, self.segments = self.pack([docs[i].ids for i in self.rng.permutation(len(docs))])
        self.order, self.cursor = self.rng.permutation(len(self.rows)), 0

    def pack(self, pieces):
        span, rows, segs, row, seg, number = self.cfg.seq_len + 1, [], [], [], [], 0
        for ids in pieces:
            ids = ids[:span]
            if len(row) + len(ids) > span and len(row) > span // 2:
                rows.append(row + [PAD] * (span - len(row)))
                segs.append(seg + [0] * (span - len(seg)))
                row, seg, number = [], [], 0
            number += 1
            ids = ids[: span - len(row)]
            row.extend(ids)
            seg.extend([number] * len(ids))
        return np.asarray(rows, np.int32), np.asarray(segs, np.int32)

    def next(self, n):
        if self.cursor + n > len(self.order):
            self.order, self.cursor = self.rng.permutation(len(self.rows)), 0
        take = self.order[self.cursor:self.cursor + n]
        self.cursor += n
        return self.rows[take], self.segments[take]


# ------------------------------------------------------------------ the model
class Block(eqx.Module):
    norms: list
    qkv: eqx.nn.Linear
    proj: eqx.nn.Linear
    mlp: eqx.nn.MLP
    heads: int = eqx.field(static=True)

    def __init__(self, cfg, key):
        k, w = jax.random.split(key, 3), cfg.width
        self.norms = [eqx.nn.LayerNorm(w), eqx.nn.LayerNorm(w)]
        self.qkv = eqx.nn.Linear(w, 3 * w, use_bias=False, key=k[0])
        self.proj = eqx.nn.Linear(w, w, use_bias=False, key=k[1])
        self.mlp = eqx.nn.MLP(w, w, 4 * w, depth=1, activation=jax.nn.gelu, key=k[2])
        self.heads = cfg.heads

    def attend(self, x, mask):
        t, w = x.shape
        q, k, v = jnp.split(jax.vmap(self.qkv)(jax.vmap(self.norms[0])(x)), 3, axis=-1)
        q, k, v = (a.reshape(t, self.heads, -1) for a in (q, k, v))
        scores = jnp.einsum("thd,shd->hts", q, k) / np.sqrt(w // self.heads)
        weights = jax.nn.softmax(jnp.where(mask, scores, -1e9), axis=-1)
        return jax.vmap(self.proj)(jnp.einsum("hts,shd->thd", weights, v).reshape(t, w))

    def feed(self, x):
        return jax.vmap(self.mlp)(jax.vmap(self.norms[1])(x))

    def __call__(self, x, mask):
        x = x + self.attend(x, mask)
        return x + self.feed(x)


class CodeGPT(eqx.Module):
    embed: jax.Array
    position: jax.Array
    blocks: list
    norm: eqx.nn.LayerNorm

    def __init__(self, cfg, key):
        ke, kp, *kb = jax.random.split(key, 2 + cfg.layers)
        self.embed = 0.02 * jax.random.normal(ke, (len(VOCAB), cfg.width))
        self.position = 0.02 * jax.random.normal(kp, (cfg.seq_len, cfg.width))
        self.blocks = [Block(cfg, k) for k in kb]
        self.norm = eqx.nn.LayerNorm(cfg.width)

    def __call__(self, ids, segment):
        t = ids.shape[0]
        mask = (segment[:, None] == segment[None, :]) & jnp.tril(jnp.ones((t, t), bool))
        x = self.embed[ids] + self.position
        for block in self.blocks:
            x = block(x, mask)
        return jax.vmap(self.norm)(x) @ self.embed.T


def loss_fn(model, rows, segs):
    logits = jax.vmap(model)(rows[:, :-1], segs[:, :-1])
    ce = optax.softmax_cross_entropy_with_integer_labels(logits, rows[:, 1:])
    live = (segs[:, 1:] == segs[:, :-1]) & (segs[:, 1:] > 0)
    return jnp.sum(ce * live) / jnp.sum(live)


def main():
    cfg = Config()
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 1400
    docs = write_corpus(cfg.documents, cfg.seed)
    held_out = len(docs) // 20
    train = PackedSampler(docs[held_out:], cfg, cfg.seed)
    valid = PackedSampler(docs[:held_out], cfg, cfg.seed + 1)
    schedule = optax.warmup_cosine_decay_schedule(0.0, cfg.lr, 50, max(steps, 100), cfg.lr / 10)
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=0.05))
    model = CodeGPT(cfg, jax.random.key(cfg.seed))
    params = eqx.filter(model, eqx.is_array)
    opt_state = tx.init(params)
    bank = (jax.tree.map(jnp.zeros_like, params), jnp.zeros(()))
    print(asdict(cfg), f"{sum(p.size for p in jax.tree.leaves(params)):,} parameters,",
          f"{len(train.rows)} rows, accumulating {cfg.accum}", flush=True)

    @eqx.filter_jit(donate="all-except-first")
    def accumulate(inputs, bank):
        loss, grads = eqx.filter_value_and_grad(loss_fn)(*inputs)
        return jax.tree.map(jnp.add, bank, (grads, loss))

    @eqx.filter_jit(donate="all")
    def apply(model, opt_state, bank):
        grads, loss = jax.tree.map(lambda b: b / cfg.accum, bank)
        updates, opt_state = tx.update(grads, opt_state, eqx.filter(model, eqx.is_array))
        return eqx.apply_updates(model, updates), opt_state, jax.tree.map(jnp.zeros_like, bank), loss

    evaluate = eqx.filter_jit(loss_fn)
    ckpt = os.path.join(tempfile.mkdtemp(prefix="code_gpt_"), "model.eqx")
    for step in range(cfg.warmup_steps + steps):
        if step == cfg.warmup_steps:
            jax.block_until_ready((model, opt_state))
            start = time.perf_counter()
        for _ in range(cfg.accum):
            bank = accumulate((model, *train.next(cfg.micro_batch)), bank)
        model, opt_state, bank, loss = apply(model, opt_state, bank)
        done = step + 1 - cfg.warmup_steps
        if done > 0 and done % cfg.log_every == 0:
            print(f"step {done:5d}  loss {float(loss):.4f}", flush=True)
        if done > 0 and done % cfg.eval_every == 0:
            val = float(evaluate(model, *valid.next(64)))
            print(f"step {done:5d}  held-out loss {val:.4f}", flush=True)
            eqx.tree_serialise_leaves(ckpt, model)
    jax.block_until_ready((model, opt_state))
    print(f"done {steps} steps in {time.perf_counter() - start:.3f} s")


if __name__ == "__main__":
    main()
