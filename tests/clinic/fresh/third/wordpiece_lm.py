"""Small decoder-only language model: parameters in plain dicts, optax for the updates."""
import math
import sys
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax

BATCH = 32
BLOCK = 32
D_MODEL = 48
N_HEADS = 4
N_LAYERS = 4
LR = 1e-3


def write_corpus(rng, n_docs=120, words_per_doc=400):
    """A made-up language: words of syllables, drawn from a Markov chain."""
    syllables = [c + v for c in "bdfgklmnprst" for v in "aeiou"]
    words = ["".join(rng.choice(syllables, rng.integers(1, 5))) for _ in range(400)]
    follow = rng.integers(0, 400, size=(400, 6))
    docs = []
    for _ in range(n_docs):
        w, out = int(rng.integers(400)), []
        for _ in range(words_per_doc):
            out.append(words[w])
            w = int(follow[w, rng.integers(6)])
        docs.append(" ".join(out) + ".")
    return docs


class Tokenizer:
    """Greedy longest match over the most frequent pieces."""

    def __init__(self, docs, size=256, longest=6):
        counts = {}
        for doc in docs[:20]:
            for i in range(len(doc)):
                for n in range(2, longest + 1):
                    piece = doc[i:i + n]
                    counts[piece] = counts.get(piece, 0) + 1
        chars = sorted(set("".join(docs)))
        best = sorted(counts, key=lambda p: -counts[p] * len(p))[:size - len(chars)]
        self.pieces = {p: i for i, p in enumerate(chars + best)}
        self.longest = longest

    def __len__(self):
        return len(self.pieces)

    def encode(self, text):
        ids, i = [], 0
        while i < len(text):
            for n in range(self.longest, 0, -1):
                piece = text[i:i + n]
                if piece in self.pieces:
                    ids.append(self.pieces[piece])
                    i += len(piece)
                    break
        return np.array(ids, np.int32)


def sample_batch(rng, encoded):
    picks = rng.integers(len(encoded), size=BATCH)
    block = BLOCK
    rows = []
    for k in picks:
        ids = encoded[k]
        start = rng.integers(len(ids) - block)
        rows.append(ids[start:start + block + 1])
    return np.stack(rows)


def init_params(rng, vocab):
    def dense(n_in, n_out):
        return jnp.asarray(rng.normal(0.0, 1.0 / math.sqrt(n_in), (n_in, n_out)))

    params = {
        "embed": jnp.asarray(rng.normal(0.0, 0.02, (vocab, D_MODEL))),
        "pos": jnp.asarray(rng.normal(0.0, 0.02, (BLOCK, D_MODEL))),
        "out": dense(D_MODEL, vocab),
        "blocks": [],
    }
    for _ in range(N_LAYERS):
        params["blocks"].append({
            "qkv": dense(D_MODEL, 3 * D_MODEL),
            "proj": dense(D_MODEL, D_MODEL),
            "up": dense(D_MODEL, 4 * D_MODEL),
            "down": dense(4 * D_MODEL, D_MODEL),
            "g1": jnp.asarray(np.ones(D_MODEL)),
            "g2": jnp.asarray(np.ones(D_MODEL)),
        })
    return params


def rms_norm(x, gain):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * gain


def forward(params, tokens):
    b, t = tokens.shape
    x = params["embed"][tokens] + params["pos"][:t]
    mask = jnp.tril(jnp.ones((t, t), bool))
    for p in params["blocks"]:
        q, k, v = jnp.split(rms_norm(x, p["g1"]) @ p["qkv"], 3, axis=-1)
        q, k, v = (a.reshape(b, t, N_HEADS, -1) for a in (q, k, v))
        att = jnp.einsum("bthd,bshd->bhts", q, k) / math.sqrt(D_MODEL // N_HEADS)
        att = jax.nn.softmax(jnp.where(mask, att, -1e9), axis=-1)
        x = x + jnp.einsum("bhts,bshd->bthd", att, v).reshape(b, t, D_MODEL) @ p["proj"]
        x = x + jax.nn.gelu(rms_norm(x, p["g2"]) @ p["up"]) @ p["down"]
    return x @ params["out"]


def loss_fn(params, batch):
    logits = forward(params, batch[:, :-1])
    return optax.softmax_cross_entropy_with_integer_labels(logits, batch[:, 1:]).mean()


def main(steps):
    rng = np.random.default_rng(0)
    docs = write_corpus(rng)
    tok = Tokenizer(docs)
    vocab = len(tok)
    encoded = [tok.encode(d) for d in docs]
    params = init_params(rng, vocab)
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(LR))
    opt_state = tx.init(params)

    @partial(jax.jit, donate_argnums=(0, 1))
    def train_step(params, opt_state, batch):
        loss, grads = jax.value_and_grad(loss_fn)(params, batch)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    for step in range(steps + 3):
        if step == 3:
            jax.block_until_ready(params)
            start = time.perf_counter()
        batch = sample_batch(rng, encoded)
        params, opt_state, loss = train_step(params, opt_state, batch)
        if step % 500 == 0:
            print(f"step {step} loss {float(loss):.4f}", flush=True)
    jax.block_until_ready((params, opt_state))
    print(f"done {steps} steps in {time.perf_counter() - start:.3f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 6000)
