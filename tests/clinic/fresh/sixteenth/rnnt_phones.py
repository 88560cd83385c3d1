"""RNN-T phone recogniser on synthetic filterbanks (haiku + optax): python rnnt_phones.py [STEPS]

TDNN on 4x stacked frames -> LSTM encoder, GRU prediction network, additive joiner. Auxiliary frame CE
on both encoder levels; the running training PER is scored on those (sclite weights, 48/39/broad classes).
"""
import os, pickle, queue, sys, tempfile, threading, time
from collections import deque, namedtuple

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax

SEED, N_MEL, STACK, N_PHONES, NEG = 1986, 40, 4, 48, -1e30   # phone 0 is blank
BUCKETS = ((160, 18, 26), (208, 26, 34))   # frames, min phones, max phones
BATCH, DEV_BATCH, DEV_BATCHES, ENC, PRED, EMB = 16, 32, 2, 80, 64, 32
JOINT = 40
MAX_SYM, SCORE_LAG = 2, 4   # symbols per encoder frame in greedy search, batches in flight before we score one
WARMUP, LOG_EVERY, PROBE_EVERY, SAVE_EVERY = 12, 50, 20, 400
FOLD39 = list(range(40)) + [3, 7, 7, 12, 19, 22, 30, 31, 1]
BROAD = [0] + [1 + (FOLD39[p] - 1) // 5 for p in range(1, N_PHONES + 1)]
LEVELS = (("48", list(range(N_PHONES + 1))), ("39", FOLD39), ("broad", BROAD))
State = namedtuple("State", "params opt ema")

def make_corpus(rng, per_bucket):
    means = rng.normal(0, 0.3, (N_PHONES + 1, N_MEL)).astype(np.float32)
    corpus = [[] for _ in BUCKETS]
    for utts, (frames, lo, hi) in zip(corpus, BUCKETS):
        for _ in range(per_bucket):
            n = rng.integers(lo, hi + 1)
            phones = np.cumsum(rng.integers(1, N_PHONES, n)) % N_PHONES + 1
            ends = np.cumsum(rng.integers(4, 9, n))
            phones, ends = phones[ends <= frames], ends[ends <= frames]
            ali = np.repeat(phones, np.diff(ends, prepend=0))
            speaker = rng.normal(0, 0.15, N_MEL).astype(np.float32)
            feats = means[ali] + speaker + rng.standard_normal((len(ali), N_MEL), dtype=np.float32)
            utts.append((feats, phones, ali))
    return corpus

def collate(utts, bucket, rng=None):
    """Pads to the bucket's shape; with an rng also gain, dither and SpecAugment."""
    (frames, _, max_phones), b = BUCKETS[bucket], len(utts)
    x = np.zeros((b, frames, N_MEL), np.float32)
    y, ali = np.zeros((b, max_phones), np.int32), np.zeros((b, frames), np.int32)
    for i, (feats, phones, labels) in enumerate(utts):
        x[i, :len(feats)], y[i, :len(phones)], ali[i, :len(labels)] = feats, phones, labels
    if rng is not None:
        x *= rng.uniform(0.9, 1.1, (b, 1, 1)).astype(np.float32)
        x += 0.1 * rng.standard_normal(x.shape, dtype=np.float32)
        for i in range(b):
            f, t = rng.integers(0, N_MEL - 6), rng.integers(0, frames - 12)
            x[i, :, f:f + rng.integers(1, 7)] = 0
            x[i, t:t + rng.integers(1, 13)] = 0
    t_len = np.array([len(u[0]) // STACK for u in utts], np.int32)
    u_len = np.array([len(u[1]) for u in utts], np.int32)
    dense = {"x": x, "y": y, "ali": ali[:, STACK // 2::STACK].copy(), "t_len": t_len, "u_len": u_len}
    return jax.device_put(dense), [u[1].tolist() for u in utts], t_len.tolist()

def start_loader(corpus, seed, depth=4):
    rng, ahead = np.random.default_rng(seed), queue.Queue(depth)
    def work():
        while True:
            for bucket in rng.permutation(len(BUCKETS)):
                picks = rng.choice(len(corpus[bucket]), BATCH, replace=False)
                ahead.put(collate([corpus[bucket][i] for i in picks], bucket, rng))
    threading.Thread(target=work, name="bucket-loader", daemon=True).start()
    return ahead

class Transducer(hk.Module):
    def __init__(self, name="rnnt"):
        super().__init__(name)
        self.tdnn, self.lstm = hk.Linear(ENC, name="tdnn"), hk.LSTM(ENC, name="enc_lstm")
        self.norm = hk.LayerNorm(-1, create_scale=True, create_offset=True, name="tdnn_norm")
        self.head_mid, self.head_top = (hk.Linear(N_PHONES + 1, name=f"head_{h}") for h in ("mid", "top"))
        self.embed, self.pred = hk.Embed(N_PHONES + 1, EMB, name="embed"), hk.GRU(PRED, name="pred_gru")
        self.j_enc, self.j_out = hk.Linear(JOINT, name="j_enc"), hk.Linear(N_PHONES + 1, name="j_out")
        self.j_pred = hk.Linear(JOINT, with_bias=False, name="j_pred")

    def encode(self, x):
        b, frames, _ = x.shape
        x = x.reshape(b, frames // STACK, STACK * N_MEL)
        p = jnp.pad(x, ((0, 0), (1, 1), (0, 0)))
        x = jnp.concatenate([p[:, :-2], x, p[:, 2:]], axis=-1)
        mid = jax.nn.relu(self.norm(self.tdnn(x)))
        return mid, hk.dynamic_unroll(self.lstm, mid, self.lstm.initial_state(b), time_major=False)[0]

    def joint(self, enc, pred):
        return self.j_out(jnp.tanh(self.j_enc(enc) + self.j_pred(pred)))

    def lattice(self, x, y):
        mid, top = self.encode(x)
        history = self.embed(jnp.pad(y, ((0, 0), (1, 0))))
        g, _ = hk.dynamic_unroll(self.pred, history, self.pred.initial_state(x.shape[0]), time_major=False)
        return self.joint(top[:, :, None], g[:, None]), self.head_mid(mid), self.head_top(top)

    def begin(self, x):
        b, (_, enc) = x.shape[0], self.encode(x)
        _, h = self.pred(self.embed(jnp.zeros(b, jnp.int32)), self.pred.initial_state(b))
        out = jnp.zeros((b, enc.shape[1] * MAX_SYM), jnp.int32)
        return enc, {"k": jnp.zeros((), jnp.int32), "h": h, "out": out}

    def advance(self, enc, t_len, s):
        t = s["k"] // MAX_SYM
        frame = jax.lax.dynamic_index_in_dim(enc, t, axis=1, keepdims=False)
        sym = jnp.where(t < t_len, jnp.argmax(self.joint(frame, s["h"]), axis=-1), 0).astype(jnp.int32)
        _, h = self.pred(self.embed(sym), s["h"])
        h = jnp.where((sym > 0)[:, None], h, s["h"])
        out = jax.lax.dynamic_update_slice_in_dim(s["out"], sym[:, None], s["k"], axis=1)
        return {"k": s["k"] + 1, "h": h, "out": out}

def build():
    m = Transducer()
    return m.lattice, (m.lattice, m.begin, m.advance)

net = hk.without_apply_rng(hk.multi_transform(build))
lattice_fn, begin_fn, advance_fn = net.apply
begin = jax.jit(begin_fn)
advance = jax.jit(advance_fn, donate_argnums=3)

def skew(x):
    """[B,T,U] -> [T+U-1,B,U]: row n holds the anti-diagonal t = n - u."""
    b, t, u = x.shape
    x = jnp.pad(x.transpose(0, 2, 1), ((0, 0), (0, 0), (0, u)), constant_values=NEG)
    return x.reshape(b, -1)[:, :-u].reshape(b, u, t + u - 1).transpose(2, 0, 1)

def transducer_nll(logits, labels, t_len, u_len):
    b, _, u1, v = logits.shape
    norm = jax.nn.logsumexp(logits, axis=-1)
    emit = (logits[:, :, :-1] * jax.nn.one_hot(labels, v)[:, None]).sum(-1) - norm[:, :, :-1]
    emit = skew(jnp.pad(emit, ((0, 0), (0, 0), (0, 1)), constant_values=NEG))
    blank = skew(logits[..., 0] - norm)
    wall = jnp.full((b, 1), NEG, jnp.float32)
    def diagonal(alpha, arcs):
        stay, label = arcs
        up = jnp.concatenate([wall, (alpha + label)[:, :-1]], axis=1)
        alpha = jnp.logaddexp(alpha + stay, up)
        return alpha, alpha
    first = jnp.full((b, u1), NEG, jnp.float32).at[:, 0].set(0.0)
    _, rest = jax.lax.scan(diagonal, first, (blank[:-1], emit[:-1]))
    n, rows = t_len - 1 + u_len, jnp.arange(b)
    return -(jnp.concatenate([first[None], rest])[n, rows, u_len] + blank[n, rows, u_len])

def make_train_step(tx):
    def loss_fn(params, batch):
        logits, mid, top = lattice_fn(params, batch["x"], batch["y"])
        nll = transducer_nll(logits, batch["y"], batch["t_len"], batch["u_len"])
        voiced = (batch["ali"] > 0).astype(jnp.float32)
        ce = sum(optax.softmax_cross_entropy_with_integer_labels(h, batch["ali"]) for h in (mid, top))
        loss = jnp.mean(nll / batch["u_len"]) + 0.3 * jnp.sum(ce * voiced) / jnp.sum(voiced)
        return loss, jnp.stack([mid.argmax(-1), top.argmax(-1)])
    def train_step(state, batch):
        (loss, ids), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params, batch)
        updates, opt = tx.update(grads, state.opt, state.params)
        params = optax.apply_updates(state.params, updates)
        return State(params, opt, optax.incremental_update(params, state.ema, 0.01)), loss, ids
    return jax.jit(train_step, donate_argnums=0)

def align(ref, hyp):
    """Errors in the sclite alignment (sub 4, ins/del 3)."""
    prev, back = [3 * j for j in range(len(hyp) + 1)], []
    for i, r in enumerate(ref):
        left = 3 * (i + 1)
        row, trace = [left], []
        for j, h in enumerate(hyp):
            best, move = prev[j] if h == r else prev[j] + 4, 0
            if prev[j + 1] + 3 < best:
                best, move = prev[j + 1] + 3, 1
            if left + 3 < best:
                best, move = left + 3, 2
            left = best
            row.append(best)
            trace.append(move)
        back.append(trace)
        prev = row
    i, j, errors = len(ref), len(hyp), 0
    while i and j:
        move = back[i - 1][j - 1]
        i, j = i - (move != 2), j - (move != 1)
        errors += move > 0 or ref[i] != hyp[j]
    return errors + i + j

class Meter:
    def __init__(self):
        self.losses, self.refs = [], 0
        self.errors = {f"{head}/{level}": 0 for head in ("mid", "top") for level, _ in LEVELS}

    def score(self, loss, ids, refs, lens):
        self.losses.append(float(loss))
        self.refs += sum(map(len, refs))
        for head, frames in zip(("mid", "top"), np.asarray(ids)):
            for ref, row, n in zip(refs, frames, lens):
                row = row[:n].tolist()
                hyp = [p for p, q in zip(row, [-1] + row) if p != q]
                for level, fold in LEVELS:
                    self.errors[f"{head}/{level}"] += align([fold[p] for p in ref], [fold[p] for p in hyp])

    def line(self):
        per = " ".join(f"{k} {100 * e / self.refs:.1f}" for k, e in self.errors.items())
        return f"loss {np.mean(self.losses):.3f}  frame PER {per}"

def probe(params, dev):
    """Dev PER of the greedy transducer search, frame-synchronous as in the streaming decoder."""
    errors = total = 0
    for batch, refs, _ in dev:
        enc, s = begin(params, batch["x"])
        for _ in range(enc.shape[1] * MAX_SYM):
            s = advance(params, enc, batch["t_len"], s)
        for ref, row in zip(refs, np.asarray(s["out"]).tolist()):
            errors += align(ref, [p for p in row if p])
            total += len(ref)
    return 100 * errors / total

def train(steps):
    workdir = tempfile.mkdtemp(prefix="rnnt_phones_")
    corpus, total = make_corpus(np.random.default_rng(SEED), 300), WARMUP + steps
    held_out = [corpus[-1].pop() for _ in range(DEV_BATCH * DEV_BATCHES)]
    dev = [collate(held_out[i::DEV_BATCHES], len(BUCKETS) - 1) for i in range(DEV_BATCHES)]
    lr = optax.warmup_cosine_decay_schedule(1e-4, 3e-3, min(100, total // 4), total, 1e-5)
    tx = optax.chain(optax.clip_by_global_norm(5.0), optax.adamw(lr, weight_decay=1e-4))
    params = jax.jit(net.init)(jax.random.PRNGKey(SEED), dev[0][0]["x"], dev[0][0]["y"])
    state = State(params, tx.init(params), jax.tree.map(jnp.copy, params))
    train_step, ahead = make_train_step(tx), start_loader(corpus, SEED + 1)
    pending, meter = deque(), Meter()
    for done in range(1 - WARMUP, steps + 1):
        if done == 1:
            print(f"warm-up over, dev PER {probe(state.ema, dev):.1f}", flush=True)
            jax.block_until_ready(state)
            started = time.perf_counter()
        batch, refs, lens = ahead.get()
        state, loss, ids = train_step(state, batch)
        pending.append((loss, ids, refs, lens))
        if len(pending) > SCORE_LAG:
            meter.score(*pending.popleft())
        if done > 0 and done % LOG_EVERY == 0:
            print(f"step {done:5d}  {done / (time.perf_counter() - started):6.1f} it/s  {meter.line()}", flush=True)
            meter = Meter()
        if done > 0 and done % PROBE_EVERY == 0:
            print(f"step {done:5d}  dev PER {probe(state.ema, dev):.1f} (greedy, ema)", flush=True)
        if done > 0 and done % SAVE_EVERY == 0:
            with open(os.path.join(workdir, f"ema_{done:06d}.pkl"), "wb") as f:
                pickle.dump(jax.device_get(jax.tree.map(jnp.copy, state.ema)), f)
    jax.block_until_ready(state)
    seconds = time.perf_counter() - started
    print(f"final dev PER {probe(state.ema, dev):.1f}, checkpoints in {workdir}")
    print(f"done {steps} steps in {seconds:.3f} s", flush=True)

if __name__ == "__main__":
    train(int(sys.argv[1]) if len(sys.argv) > 1 else 1600)
