"""A haiku tagger with a CRF on top: find quantities, dates, places and people in invented dispatches.

Sentences come from a small grammar. They are encoded once, sorted into buckets of similar length,
and the batches of a bucket have one shape. While the device works the main thread pads the next batch
and decodes (Viterbi) and scores the one before the last.

    python crf_tagger.py [STEPS]
"""
import itertools
import sys
import time
from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax

SENTENCES = 12_000
BATCH = 32
BUCKETS = (16, 24, 32, 48)
EMBED, HIDDEN = 48, 64
NEXT_WORDS = 512              # the auxiliary head predicts the hash of the next word
HASH_PRIME = 1_000_003
LABELS = ["O", "B-QTY", "I-QTY", "B-DATE", "I-DATE", "B-LOC", "I-LOC", "B-PER", "I-PER"]
TAG = {name: i for i, name in enumerate(LABELS)}
LOG_EVERY = 100


# ---------------------------------------------------------------- corpus

def invent_words(rng, count, syllables):
    parts = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]
    return ["".join(rng.choice(parts, rng.integers(2, syllables + 1))) for _ in range(count)]


class Grammar:
    def __init__(self, seed):
        self.rng = rng = np.random.default_rng(seed)
        self.filler = invent_words(rng, 2500, 4)
        self.units = invent_words(rng, 40, 2)
        self.places = invent_words(rng, 900, 5)
        self.people = invent_words(rng, 900, 4)
        self.months = invent_words(rng, 12, 3)

    def pick(self, words):
        return words[int(len(words) * self.rng.random() ** 2)]

    def chunk(self):
        kind = self.rng.integers(0, 7)
        if kind == 0:
            return [str(self.rng.integers(1, 900)), self.pick(self.units)], ["B-QTY", "I-QTY"]
        if kind == 1:
            return [str(self.rng.integers(1, 31)), self.pick(self.months)], ["B-DATE", "I-DATE"]
        if kind == 2:
            return ["near", self.pick(self.places), "bay"], ["O", "B-LOC", "I-LOC"]
        if kind == 3:
            return ["captain", self.pick(self.people), self.pick(self.people)], ["O", "B-PER", "I-PER"]
        n = self.rng.integers(1, 5)
        return [self.pick(self.filler) for _ in range(n)], ["O"] * n

    def sentence(self):
        words, tags = [], []
        target = self.rng.integers(8, 46)
        while len(words) < target:
            w, t = self.chunk()
            words += w
            tags += t
        return words[:48], tags[:48]


class Example(NamedTuple):
    words: np.ndarray
    tags: np.ndarray
    following: np.ndarray


def hash_word(word):
    h = 0
    for ch in word:
        h = (h * 257 + ord(ch)) % HASH_PRIME
    return h % NEXT_WORDS


def encode(sentence, vocab):
    words, tags = sentence
    ids = np.array([vocab.get(w, 1) for w in words], np.int32)
    following = np.array([hash_word(w) for w in words[1:]] + [0], np.int32)
    return Example(ids, np.array([TAG[t] for t in tags], np.int32), following)


def bucket_of(length):
    return next(b for b in BUCKETS if length <= b)


def pad(examples, length):
    out = np.zeros((3, len(examples), length), np.int32)
    lengths = np.zeros(len(examples), np.int32)
    for row, ex in enumerate(examples):
        n = lengths[row] = len(ex.words)
        out[0, row, :n], out[1, row, :n], out[2, row, :n] = ex
    return {"words": out[0], "tags": out[1], "next": out[2], "lengths": lengths}


def batches(corpus, vocab, rng):
    """Endless; each batch comes from one bucket, buckets in proportion to their sentences."""
    examples = [encode(s, vocab) for s in corpus]
    by_bucket = {b: [] for b in BUCKETS}
    for ex in examples:
        by_bucket[bucket_of(len(ex.words))].append(ex)
    share = np.array([len(by_bucket[b]) for b in BUCKETS], float)
    for b in BUCKETS:                                     # one of each first, to compile them all
        yield pad(by_bucket[b][:BATCH], b)
    while True:
        b = BUCKETS[rng.choice(len(BUCKETS), p=share / share.sum())]
        chosen = [by_bucket[b][i] for i in rng.integers(0, len(by_bucket[b]), BATCH)]
        yield pad(chosen, b)


# ---------------------------------------------------------------- model

def tagger(words, vocab_size):
    x = hk.Embed(vocab_size, EMBED)(words)
    x = jnp.swapaxes(x, 0, 1)
    left, right = hk.GRU(HIDDEN, name="left"), hk.GRU(HIDDEN, name="right")
    n = words.shape[0]
    forth, _ = hk.dynamic_unroll(left, x, left.initial_state(n))
    back, _ = hk.dynamic_unroll(right, x[::-1], right.initial_state(n))
    h = jnp.concatenate([forth, back[::-1]], -1)
    emissions = hk.Linear(len(LABELS))(h)
    guess = hk.Linear(NEXT_WORDS, name="next_word")(forth)
    moves = hk.get_parameter("moves", (len(LABELS), len(LABELS)), init=hk.initializers.RandomNormal(0.1))
    return jnp.swapaxes(emissions, 0, 1), jnp.swapaxes(guess, 0, 1), moves


def crf_nll(emissions, moves, tags, mask):
    def one(em, tg, mk):
        score = (jnp.take_along_axis(em, tg[:, None], 1)[:, 0] * mk).sum()
        score += (moves[tg[:-1], tg[1:]] * mk[1:]).sum()

        def forward(alpha, inp):
            e, m = inp
            new = jax.nn.logsumexp(alpha[:, None] + moves, axis=0) + e
            return jnp.where(m > 0, new, alpha), None

        alpha, _ = jax.lax.scan(forward, em[0], (em[1:], mk[1:]))
        return jax.nn.logsumexp(alpha) - score
    return jax.vmap(one)(emissions, tags, mask)


def spans(tags):
    """Starts, ends and kinds of the tagged spans of one sentence."""
    found, begin = set(), None
    for i, t in enumerate(itertools.chain(tags, [0])):
        if begin is not None and (t == 0 or t % 2 == 1):
            found.add((begin, i, int(tags[begin])))
            begin = None
        if t % 2 == 1:
            begin = i
    return found


def viterbi(emissions, moves, lengths):
    """Best tag sequences of a batch, in numpy; padding keeps the tag that it starts with."""
    rows, length, kinds = emissions.shape
    stay = np.where(np.eye(kinds) > 0, 0.0, -1e4)
    best, back = emissions[:, 0], np.zeros((length, rows, kinds), np.int64)
    for t in range(1, length):
        inside = (t < lengths)[:, None, None]
        ways = best[:, :, None] + np.where(inside, moves, stay)
        back[t] = ways.argmax(1)
        best = ways.max(1) + np.where(inside[..., 0], emissions[:, t], 0.0)
    tags = np.zeros((rows, length), np.int64)
    tags[:, -1] = best.argmax(1)
    for t in range(length - 1, 0, -1):
        tags[:, t - 1] = back[t][np.arange(rows), tags[:, t]]
    return tags


class SpanScore:
    """F1 of the spans, over a sliding window; host work of a few milliseconds a batch."""

    def __init__(self):
        self.hits = self.said = self.true = 1e-9

    def add(self, batch, emissions, moves):
        guess = viterbi(np.asarray(emissions), np.asarray(moves), batch["lengths"])
        for row, n in enumerate(batch["lengths"]):
            truth, said = spans(batch["tags"][row, :n].tolist()), spans(guess[row, :n].tolist())
            self.hits = 0.99 * self.hits + len(truth & said)
            self.said = 0.99 * self.said + len(said)
            self.true = 0.99 * self.true + len(truth)

    def f1(self):
        return 2 * self.hits / (self.said + self.true)


def main(steps=8000):
    grammar = Grammar(11)
    corpus = [grammar.sentence() for _ in range(SENTENCES)]
    vocab = {"<pad>": 0, "<unk>": 1}
    for words, _ in corpus:
        for w in words:
            vocab.setdefault(w, len(vocab))
    stream = batches(corpus, vocab, np.random.default_rng(1))
    net = hk.without_apply_rng(hk.transform(lambda words: tagger(words, len(vocab))))
    params = net.init(jax.random.PRNGKey(0), np.zeros((2, BUCKETS[0]), np.int32))
    tx = optax.chain(optax.clip_by_global_norm(2.0), optax.adam(2e-3))

    def step_fn(params, opt, batch):
        def loss_fn(params):
            emissions, guess, moves = net.apply(params, batch["words"])
            mask = (jnp.arange(emissions.shape[1])[None] < batch["lengths"][:, None]).astype(jnp.float32)
            nll = crf_nll(emissions, moves, batch["tags"], mask).sum() / mask.sum()
            nxt = optax.softmax_cross_entropy_with_integer_labels(guess, batch["next"])
            return nll + 0.1 * (nxt * mask).sum() / mask.sum(), (emissions, moves)
        (loss, best), grads = jax.value_and_grad(loss_fn, has_aux=True)(params)
        updates, opt = tx.update(grads, opt, params)
        return optax.apply_updates(params, updates), opt, loss, best

    step = jax.jit(step_fn, donate_argnums=(0, 1))
    opt, score, waiting, clock, warm = tx.init(params), SpanScore(), [], 0.0, 5
    for i, batch in enumerate(itertools.islice(stream, steps)):
        if i == warm:
            jax.block_until_ready(params)
            clock = time.perf_counter()
        params, opt, loss, best = step(params, opt, batch)
        waiting.append((batch, best))
        if len(waiting) > 2:                              # this one is long finished
            old, scores = waiting.pop(0)
            score.add(old, *scores)
        if (i + 1) % LOG_EVERY == 0:
            print(f"step {i + 1} loss {float(loss):.4f} span f1 {score.f1():.3f}", flush=True)
    jax.block_until_ready(params)
    print(f"done {steps - warm} steps in {time.perf_counter() - clock:.3f} s")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
