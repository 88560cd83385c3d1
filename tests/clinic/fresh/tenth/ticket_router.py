"""Routes support tickets to teams: hashed n-gram table + attention pooling, hand-written AdamW."""
import sys
import threading
import time
from collections import deque

import jax
import jax.numpy as jnp
import numpy as np

CFG = {
    "buckets": 50_000,
    "dim": 64,
    "length": 48,
    "batch": 16,
    "teams": 24,
    "lr": 1e-3,
    "decay": 1e-5,
    "steps": 5000,
    "report": 50,
}

SYLL = "ka lo mi ter ban ru ser print log acc pay net vpn disk out in re un crash slow".split()


def make_corpus(rng, n=6000, teams=CFG["teams"]):
    """Tickets as strings; every team has its own favourite words."""
    lex = np.array(["".join(rng.choice(SYLL, rng.integers(2, 5))) for _ in range(4000)])
    label = rng.integers(0, teams, n)
    texts = []
    for y in label:
        own = rng.integers(y * 120, y * 120 + 160, 14)
        other = rng.zipf(1.3, 34).clip(1, 4000) - 1
        texts.append(" ".join(rng.permutation(lex[np.concatenate([own, other])])))
    return texts, label.astype(np.int32)


def bucket(gram):
    h = 2166136261
    for ch in gram.encode():
        h = ((h ^ ch) * 16777619) & 0xFFFFFFFF
    return 1 + h % (CFG["buckets"] - 1)


def encode(text, cache={}):
    words = text.split()
    ids = []
    for a, b in zip(words, words[1:] + ["</s>"]):
        for gram in (a, a + "_" + b):
            if gram not in cache:
                cache[gram] = bucket(gram)
            ids.append(cache[gram])
    row = np.zeros(CFG["length"], np.int32)
    row[:min(len(ids), CFG["length"])] = ids[:CFG["length"]]
    return row


class Tickets:
    def __init__(self, rng):
        self.texts, self.team = make_corpus(rng)
        self.rows = np.stack([encode(t) for t in self.texts])
        counts = np.bincount(self.rows.ravel(), minlength=CFG["buckets"])
        self.idf = np.log(1 + len(self.texts) / (1 + counts)).astype(np.float32)

    def batch(self, rng):
        pick = rng.integers(0, len(self.team), CFG["batch"])
        ids = self.rows[pick]
        return ids, self.idf[ids], self.team[pick]


def background(make, ahead=3):
    """Runs make() in a thread, at most `ahead` results before they are needed."""
    ready, free, items = threading.Semaphore(0), threading.Semaphore(ahead), deque()

    def work():
        while True:
            free.acquire()
            items.append(make())
            ready.release()

    threading.Thread(target=work, daemon=True).start()
    while True:
        ready.acquire()
        item = items.popleft()
        free.release()
        yield item


def init_params(seed):
    r = np.random.default_rng(seed)
    d, w = CFG["dim"], lambda *s: jnp.asarray(r.standard_normal(s) / np.sqrt(s[0]), jnp.float32)
    table = jnp.asarray(0.05 * r.standard_normal((CFG["buckets"], d)), jnp.float32)
    blocks = [[w(d, d), w(d, d), w(d, d), w(d, 2 * d), w(2 * d, d)] for _ in range(2)]
    return [table, blocks, [w(d, 1), w(d, CFG["teams"])]]


def norm(x):
    return x / jnp.sqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def forward(params, ids, idf):
    table, blocks, (gate, out) = params
    x = table[ids] * idf[..., None]
    keep = (ids > 0)[..., None]
    for q, k, v, up, down in blocks:
        h = norm(x)
        att = jnp.einsum("bld,bmd->blm", h @ q, h @ k) / CFG["dim"] ** 0.5
        att = jax.nn.softmax(jnp.where(keep[:, None, :, 0], att, -1e9), axis=-1)
        x = x + att @ (h @ v)
        x = x + jax.nn.relu(norm(x) @ up) @ down
    pool = jax.nn.softmax(jnp.where(keep, norm(x) @ gate, -1e9), axis=1)
    return (pool * x).sum(axis=1) @ out


def train(state, batch):
    params, mu, nu, t = state
    ids, idf, team = batch

    def nll(p):
        logp = jax.nn.log_softmax(forward(p, ids, idf))
        return -jnp.take_along_axis(logp, team[:, None], axis=1).mean()

    loss, grads = jax.value_and_grad(nll)(params)
    t = t + 1
    lr = CFG["lr"] * jnp.minimum(1.0, t / 200)
    mu = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mu, grads)
    nu = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, nu, grads)
    c1, c2 = 1 - 0.9 ** t, 1 - 0.99 ** t
    params = jax.tree.map(
        lambda p, m, v: p - lr * (m / c1 / (jnp.sqrt(v / c2) + 1e-8) + CFG["decay"] * p), params, mu, nu)
    return [params, mu, nu, t], loss


train_jit = jax.jit(train, donate_argnums=(0,))


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else CFG["steps"]
    rng = np.random.default_rng(1)
    data = Tickets(rng)
    source = background(lambda: data.batch(rng))
    params = init_params(0)
    zeros = jax.tree.map(jnp.zeros_like, params)
    state = [params, zeros, jax.tree.map(jnp.zeros_like, params), jnp.zeros((), jnp.int32)]
    for _ in range(5):
        state, loss = train_jit(state, next(source))
    jax.block_until_ready(state)
    clock = time.perf_counter()
    for n in range(1, steps + 1):
        state, loss = train_jit(state, next(source))
        if n % CFG["report"] == 0:
            print(f"step {n} nll {float(loss):.4f}", flush=True)
    jax.block_until_ready(state)
    print(f"done {steps} steps in {time.perf_counter() - clock:.3f} s")


if __name__ == "__main__":
    main()
