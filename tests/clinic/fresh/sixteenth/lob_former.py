"""Mid-price moves from order book snapshots with a small transformer: the book streams into a ring of the last
million events; each step takes in the newest, trains on windows of the ring and lets paper accounts trade.
    python lob_former.py [STEPS]"""
import os
import sys
import tempfile
import time
from collections import namedtuple
from dataclasses import dataclass
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy.signal import lfilter

# ring: (history, 4 * levels); head: the next row to be overwritten, so also the oldest
Tape = namedtuple("Tape", "ring head")
Book = namedtuple("Book", "position cash trades")
TrainState = namedtuple("TrainState", "params ema opt_state key")

@dataclass(frozen=True)
class Config:
    levels: int = 10
    history: int = 1 << 20          # events held in the ring
    live: int = 1 << 18             # events replayed as the live feed
    chunk: int = 64                 # new events per training step
    holdout: int = 20_000           # newest events, kept for validation
    window: int = 48
    horizon: int = 20
    d_model: int = 48
    heads: int = 4
    layers: int = 3
    readout_width: int = 64
    batch: int = 48
    accounts: int = 32
    steps: int = 2400
    log_every: int = 50
    eval_every: int = 200
    save_every: int = 600
    seed: int = 7

def simulate_tape(cfg: Config) -> np.ndarray:
    """Rows of (ask prices, ask sizes, bid prices, bid sizes); prices in ticks."""
    rng = np.random.default_rng(cfg.seed)
    n, k = cfg.history + cfg.live, cfg.levels
    pressure = 0.2 * lfilter([1.0], [1.0, -0.98], rng.standard_normal(n))
    tilt = np.tanh(np.concatenate([[0.0], pressure[:-1]]))
    u = rng.random(n)
    moves = (u < 0.08 * (1 + tilt)).astype(np.int64) - (u > 1 - 0.08 * (1 - tilt)).astype(np.int64)
    mid = 10_000.0 + np.cumsum(moves)
    half = 0.5 * (1 + (rng.random(n) < 0.2))
    depth = np.arange(k, dtype=np.float32)
    lean = (0.4 * pressure).astype(np.float32)[:, None]
    sizes = rng.standard_normal((n, 2 * k), dtype=np.float32) * 0.5 + 1.5
    tape = np.empty((n, 4 * k), np.float32)
    tape[:, :k] = (mid + half).astype(np.float32)[:, None] + depth
    tape[:, k:2 * k] = np.exp(sizes[:, :k] - lean)
    tape[:, 2 * k:3 * k] = (mid - half).astype(np.float32)[:, None] - depth
    tape[:, 3 * k:] = np.exp(sizes[:, k:] + lean)
    return tape

class Feed:
    """Holds the whole tape; plays its end chunk by chunk."""
    def __init__(self, cfg: Config):
        self.cfg, self.rows, self.cursor = cfg, simulate_tape(cfg), cfg.history
    def next_chunk(self):
        if self.cursor + self.cfg.chunk > len(self.rows):
            self.cursor = self.cfg.history
        self.cursor += self.cfg.chunk
        return self.rows[self.cursor - self.cfg.chunk:self.cursor]

@partial(jax.jit, donate_argnums=0)
def ingest(tape, rows):
    ring = jax.lax.dynamic_update_slice(tape.ring, rows, (tape.head, 0))
    return Tape(ring, (tape.head + rows.shape[0]) % ring.shape[0])

def cut(tape, ends, before, after=0):
    """Rows [end - before, end + after) of the ring for each end."""
    idx = (ends[:, None] + jnp.arange(-before, after)) % tape.ring.shape[0]
    return tape.ring.at[idx].get(mode="promise_in_bounds")

def mirror(rows):
    ask_p, ask_v, bid_p, bid_v = jnp.split(rows, 4, axis=-1)
    return jnp.concatenate([-bid_p, bid_v, -ask_p, ask_v], axis=-1)

def features(rows):
    ask_p, ask_v, bid_p, bid_v = jnp.split(rows, 4, axis=-1)
    mid = 0.5 * (ask_p[..., :1] + bid_p[..., :1])
    ref = mid[..., -1:, :]
    best_a, best_b = ask_v[..., :1], bid_v[..., :1]
    all_a, all_b = ask_v.sum(-1, keepdims=True), bid_v.sum(-1, keepdims=True)
    micro = (ask_p[..., :1] * best_b + bid_p[..., :1] * best_a) / (best_a + best_b)
    return jnp.concatenate([
        0.1 * (ask_p - ref), jnp.log1p(ask_v) - 1.5, 0.1 * (bid_p - ref), jnp.log1p(bid_v) - 1.5,
        (best_b - best_a) / (best_b + best_a), (all_b - all_a) / (all_b + all_a),
        ask_p[..., :1] - bid_p[..., :1] - 1.0, micro - mid, jnp.diff(mid, axis=-2, prepend=mid[..., :1, :]),
    ], axis=-1)

def move_labels(cfg, rows):
    """0 down, 1 flat, 2 up: mean mid over the horizon against the mid at the window's end."""
    mid = 0.5 * (rows[..., 0] + rows[..., 2 * cfg.levels])
    move = mid[:, cfg.window:].mean(1) - mid[:, cfg.window - 1]
    return 1 + (move > 0.35).astype(jnp.int32) - (move < -0.35).astype(jnp.int32)

class Block(eqx.Module):
    norm1: eqx.nn.LayerNorm
    attn: eqx.nn.MultiheadAttention
    norm2: eqx.nn.LayerNorm
    up: eqx.nn.Linear
    down: eqx.nn.Linear
    def __init__(self, d, heads, key):
        k1, k2, k3 = jax.random.split(key, 3)
        self.norm1, self.norm2 = eqx.nn.LayerNorm(d), eqx.nn.LayerNorm(d)
        self.attn = eqx.nn.MultiheadAttention(heads, d, key=k1)
        self.up, self.down = eqx.nn.Linear(d, 4 * d, key=k2), eqx.nn.Linear(4 * d, d, key=k3)
    def __call__(self, x):
        h = jax.vmap(self.norm1)(x)
        x = x + self.attn(h, h, h)
        h = jax.vmap(self.norm2)(x)
        return x + jax.vmap(self.down)(jax.nn.gelu(jax.vmap(self.up)(h)))

class BookFormer(eqx.Module):
    embed: eqx.nn.Linear
    position: jax.Array
    blocks: list
    norm: eqx.nn.LayerNorm
    readout: eqx.nn.Linear
    head: eqx.nn.Linear
    def __init__(self, cfg, key):
        ke, kp, kr, kh, *kb = jax.random.split(key, 4 + cfg.layers)
        self.embed = eqx.nn.Linear(4 * cfg.levels + 5, cfg.d_model, key=ke)
        self.position = 0.02 * jax.random.normal(kp, (cfg.window, cfg.d_model))
        self.blocks = [Block(cfg.d_model, cfg.heads, k) for k in kb]
        self.norm = eqx.nn.LayerNorm(cfg.d_model)
        self.readout = eqx.nn.Linear(cfg.window * cfg.d_model, cfg.readout_width, key=kr)
        self.head = eqx.nn.Linear(cfg.readout_width, 3, key=kh)
    def __call__(self, x):
        x = jax.vmap(self.embed)(x) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(jax.nn.gelu(self.readout(jax.vmap(self.norm)(x).reshape(-1))))

class Backtest:
    """Paper accounts that differ in latency and in the edge they ask for; they trade after every training step."""
    def __init__(self, cfg: Config, static):
        self.cfg = cfg
        self.lags = jnp.arange(cfg.accounts, dtype=jnp.int32) % 16
        self.edges = jnp.linspace(0.05, 0.6, cfg.accounts, dtype=jnp.float32)
        self.book = Book(*(jnp.full(cfg.accounts, x, jnp.float32) for x in (0.0, 0.0, 0.0)))

        @jax.jit
        def signal(params, tape, lags):
            model = jax.vmap(eqx.combine(params, static))
            rows = cut(tape, tape.head + cfg.history - lags, cfg.window)
            straight = jax.nn.softmax(model(features(rows)))
            mirrored = jax.nn.softmax(model(features(mirror(rows))))
            return 0.5 * (straight + mirrored[:, ::-1])

        @partial(jax.jit, donate_argnums=0)
        def settle(book, tape, probs, edges):
            last = tape.ring[(tape.head - 1) % cfg.history]
            edge = probs[:, 2] - probs[:, 0]
            target = jnp.where(edge > edges, 1.0, jnp.where(edge < -edges, -1.0, 0.0))
            trade = target - book.position
            cash = book.cash - trade * jnp.where(trade > 0, last[0], last[2 * cfg.levels])
            return Book(target, cash, book.trades + jnp.abs(trade))
        self._signal, self._settle = signal, settle
    def signals(self, params, tape):
        return self._signal(params, tape, self.lags)
    def on_events(self, params, tape):
        self.book = self._settle(self.book, tape, self.signals(params, tape), self.edges)

class Trainer:
    def __init__(self, cfg: Config):
        self.cfg, self.feed = cfg, Feed(cfg)
        self.tape = Tape(jnp.array(self.feed.rows[:cfg.history]), jnp.array(0, jnp.int32))
        schedule = optax.warmup_cosine_decay_schedule(0.0, 1e-3, 100, max(cfg.steps, 200), 5e-5)
        optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=1e-2))
        k_model, k_train, self.eval_key = jax.random.split(jax.random.PRNGKey(cfg.seed), 3)
        params, static = eqx.partition(BookFormer(cfg, k_model), eqx.is_array)
        self.state = TrainState(params, jax.tree.map(jnp.array, params), optimizer.init(params), k_train)
        self.backtest = Backtest(cfg, static)
        self.run_dir = tempfile.mkdtemp(prefix="lob_former_")

        def loss_fn(params, x, y):
            logits = jax.vmap(eqx.combine(params, static))(x)
            loss = optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()
            return loss, (logits.argmax(-1) == y).mean()

        def draw(tape, key, n, oldest, newest):
            rows = cut(tape, tape.head + jax.random.randint(key, (n,), oldest, newest), cfg.window, cfg.horizon)
            return features(rows[:, :cfg.window]), move_labels(cfg, rows)

        @partial(jax.jit, donate_argnums=0)
        def train_step(state, tape):
            key, sub = jax.random.split(state.key)
            x, y = draw(tape, sub, cfg.batch, cfg.window, cfg.history - cfg.holdout - cfg.horizon)
            metrics, grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params, x, y)
            updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
            params = optax.apply_updates(state.params, updates)
            ema = jax.tree.map(lambda e, p: e + 0.005 * (p - e), state.ema, params)
            return TrainState(params, ema, opt_state, key), metrics

        @jax.jit
        def evaluate(params, tape, key):
            oldest, newest = cfg.history - cfg.holdout + cfg.window, cfg.history - cfg.horizon
            return loss_fn(params, *draw(tape, key, 8 * cfg.batch, oldest, newest))
        self._train_step, self._evaluate = train_step, evaluate
    def step(self):
        self.tape = ingest(self.tape, self.feed.next_chunk())
        self.state, metrics = self._train_step(self.state, self.tape)
        self.backtest.on_events(self.state.ema, self.tape)
        return metrics
    def report(self, step, name, metrics):
        print(f"{step:6d}  {name} loss {float(metrics[0]):.4f}  acc {float(metrics[1]):.3f}", flush=True)
    def validate(self, step):
        self.report(step, "valid", self._evaluate(self.state.ema, self.tape, self.eval_key))
        print(f"        trades per account {float(jnp.mean(self.backtest.book.trades)):.0f}", flush=True)
    def save(self, step):
        path = os.path.join(self.run_dir, f"ema_{step:06d}.eqx")
        eqx.tree_serialise_leaves(path, jax.tree.map(jnp.copy, self.state.ema))
    def fit(self):
        cfg = self.cfg
        for _ in range(8):
            self.step()
        self.validate(0)
        self.save(0)
        jax.block_until_ready((self.state, self.tape, self.backtest.book))
        began = time.perf_counter()
        for step in range(1, cfg.steps + 1):
            metrics = self.step()
            if step % cfg.log_every == 0:
                self.report(step, "train", metrics)
            if step % cfg.eval_every == 0:
                self.validate(step)
            if step % cfg.save_every == 0:
                self.save(step)
        jax.block_until_ready((self.state, self.tape, self.backtest.book))
        return time.perf_counter() - began

if __name__ == "__main__":
    config = Config(steps=int(sys.argv[1])) if len(sys.argv) > 1 else Config()
    seconds = Trainer(config).fit()
    print(f"done {config.steps} steps in {seconds:.3f} s")
