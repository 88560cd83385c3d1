"""Federated rhythm classification across simulated clinics (FedProx clients, FedAvgM server).

Every clinic keeps its own beat-centred ECG windows and a small table of patient features. The clinics differ in
class mix, size, electrode gain and noise. One step is one communication round.
"""
import argparse
import logging
import os
import sys
import tempfile
import time
from dataclasses import dataclass

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import serialization
from scipy import signal

log = logging.getLogger("fed_clinics")
RAW_HZ, RAW_LEN, DECIMATE = 500, 1024, 4
WAVE_LEN, N_TAB = RAW_LEN // DECIMATE, 12
RHYTHMS = ("sinus", "afib", "bradycardia", "bundle-block", "st-change")
BANDPASS = signal.butter(3, [1.0, 40.0], btype="bandpass", fs=RAW_HZ, output="sos")

# per rhythm: beats per second, irregularity, QRS width factor, P amplitude, T amplitude
RATE = np.array([1.2, 1.5, 0.8, 1.2, 1.3], np.float32)
IRREGULAR = np.array([0.02, 0.25, 0.02, 0.02, 0.03], np.float32)
QRS_WIDTH = np.array([1.0, 1.0, 1.0, 1.9, 1.1], np.float32)
P_AMP = np.array([0.15, 0.0, 0.16, 0.12, 0.14], np.float32)
T_AMP = np.array([0.30, 0.26, 0.32, 0.20, -0.22], np.float32)

def record_ecg(rng, labels, gain, noise):
    """Raw 500 Hz windows, an R peak in the middle of each."""
    n = labels.size
    t = (np.arange(RAW_LEN, dtype=np.float32) - RAW_LEN / 2) / RAW_HZ
    rate = (RATE[labels] * rng.normal(1.0, 0.06, n)).astype(np.float32)[:, None]
    sway = rng.uniform(0.3, 0.9, (n, 1)).astype(np.float32)
    phase = t * rate + IRREGULAR[labels][:, None] * np.sin(2 * np.pi * sway * t)
    beat = phase - np.round(phase)
    ecg = noise * rng.standard_normal((n, RAW_LEN), dtype=np.float32)
    for centre, width, amp in ((-0.20, 0.030, P_AMP[labels]), (0.26, 0.050, T_AMP[labels])):
        ecg += amp[:, None] * np.exp(-0.5 * ((beat - centre) / width) ** 2)
    qrs = beat / QRS_WIDTH[labels][:, None]
    for centre, width, amp in ((-0.035, 0.012, -0.12), (0.0, 0.014, 1.0), (0.04, 0.015, -0.22)):
        ecg += amp * np.exp(-0.5 * ((qrs - centre) / width) ** 2)
    return (gain * ecg).astype(np.float32)

def condition(raw):
    """Zero-phase band-pass, decimation to 125 Hz and robust scaling, window by window."""
    clean = signal.sosfiltfilt(BANDPASS, raw, axis=-1)[:, ::DECIMATE]
    low, mid, high = np.percentile(clean, [5, 50, 95], axis=-1, keepdims=True)
    return ((clean - mid) / (high - low + 1e-6)).astype(np.float32)

def simulate_site(rng, n, mix, class_profile):
    labels = rng.choice(len(RHYTHMS), size=n, p=mix).astype(np.int32)
    raw = record_ecg(rng, labels, gain=rng.uniform(0.6, 1.5), noise=rng.uniform(0.02, 0.10))
    site_shift = rng.normal(0.0, 0.5, N_TAB)
    tabular = class_profile[labels] + site_shift + rng.normal(0.0, 1.0, (n, N_TAB))
    return labels, raw, tabular.astype(np.float32)

def augment(wave, rng):
    """Tempo and alignment jitter, baseline wander, mains hum, muscle noise and lead gain."""
    n, length = wave.shape
    def draw(low, high):
        return rng.uniform(low, high, (n, 1)).astype(np.float32)
    grid = np.arange(length, dtype=np.float32)
    pos = np.clip((grid - length / 2) * draw(0.93, 1.07) + length / 2 + draw(-6.0, 6.0), 0.0, length - 1.01)
    base = np.floor(pos)
    left, frac = base.astype(np.intp), pos - base
    out = np.take_along_axis(wave, left, 1) * (1.0 - frac) + np.take_along_axis(wave, left + 1, 1) * frac
    t = grid * (DECIMATE / RAW_HZ)
    out += draw(0.0, 0.15) * np.sin(2 * np.pi * (draw(0.1, 0.5) * t + draw(0.0, 1.0)))
    out += draw(0.0, 0.04) * np.sin(2 * np.pi * (50.0 * t + draw(0.0, 1.0)))
    out += draw(0.0, 0.08) * rng.standard_normal(out.shape, dtype=np.float32)
    out *= draw(0.85, 1.15)
    return out

@dataclass
class Client:
    name: str
    waves: np.ndarray
    tabular: np.ndarray
    labels: np.ndarray
    rng: np.random.Generator
    last_loss: float = float("nan")
    @property
    def size(self):
        return self.labels.size

    def local_batches(self, steps, batch):
        idx = self.rng.integers(0, self.size, steps * batch)
        wave = augment(self.waves[idx], self.rng)
        return {"wave": wave.reshape(steps, batch, WAVE_LEN), "tab": self.tabular[idx].reshape(steps, batch, N_TAB),
                "label": self.labels[idx].reshape(steps, batch)}

def build_clients(args, class_profile):
    clients = []
    for i, seed in enumerate(np.random.SeedSequence(args.seed).spawn(args.clinics)):
        rng = np.random.default_rng(seed)
        mix = 0.9 * rng.dirichlet(np.full(len(RHYTHMS), 0.6)) + 0.1 / len(RHYTHMS)
        labels, raw, tabular = simulate_site(rng, int(rng.integers(200, 700)), mix / mix.sum(), class_profile)
        clients.append(Client(f"clinic{i:02d}", waves=condition(raw), tabular=tabular, labels=labels, rng=rng))
    return clients

def build_test_set(args, class_profile, sites=8, per_site=128):
    rng = np.random.default_rng(args.seed + 999)
    parts = [simulate_site(rng, per_site, np.full(len(RHYTHMS), 1 / len(RHYTHMS)), class_profile) for _ in range(sites)]
    labels, raw, tabular = (np.concatenate(column) for column in zip(*parts))
    return jax.device_put({"wave": condition(raw), "tab": tabular, "label": labels})

class RhythmNet(nn.Module):
    classes: int = len(RHYTHMS)
    @nn.compact
    def __call__(self, wave, tab, train):
        x = nn.gelu(nn.LayerNorm()(nn.Dense(128)(wave)))
        x = nn.Dropout(0.1, deterministic=not train)(x)
        x = nn.gelu(nn.Dense(96)(x))
        t = nn.gelu(nn.Dense(32)(tab))
        h = nn.gelu(nn.Dense(64)(jnp.concatenate([x, t], axis=-1)))
        return nn.Dense(self.classes)(h)

def make_local_update(model, tx):
    def loss_fn(params, batch, key):
        logits = model.apply({"params": params}, batch["wave"], batch["tab"], train=True, rngs={"dropout": key})
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"]).mean()

    def local_update(global_params, data, seed, lr, mu):
        def sgd_step(carry, xs):
            params, trace = carry
            batch, key = xs
            loss, grads = jax.value_and_grad(loss_fn)(params, batch, key)
            grads = jax.tree.map(lambda g, p, ref: g + mu * (p - ref), grads, params, global_params)
            updates, trace = tx.update(grads, trace, params)
            params = jax.tree.map(lambda p, u: p - lr * u, params, updates)
            return (params, trace), loss
        keys = jax.random.split(jax.random.key(seed), data["label"].shape[0])
        (params, _), losses = jax.lax.scan(sgd_step, (global_params, tx.init(global_params)), (data, keys))
        return jax.tree.map(jnp.subtract, params, global_params), losses.mean()
    return local_update

def make_aggregate(tx):
    def aggregate(params, opt_state, deltas, losses, weights):
        w = weights / weights.sum()
        pseudo_grad = jax.tree.map(lambda *ds: -sum(w[i] * d for i, d in enumerate(ds)), *deltas)
        updates, opt_state = tx.update(pseudo_grad, opt_state, params)
        stats = {"losses": jnp.stack(losses), "update_norm": optax.global_norm(updates)}
        return optax.apply_updates(params, updates), opt_state, stats
    return aggregate

def make_evaluate(model):
    def evaluate(params, test):
        logits = model.apply({"params": params}, test["wave"], test["tab"], train=False)
        loss = optax.softmax_cross_entropy_with_integer_labels(logits, test["label"]).mean()
        truth = jax.nn.one_hot(test["label"], len(RHYTHMS))
        hit = (logits.argmax(-1) == test["label"])[:, None] * truth
        return {"loss": loss, "balanced_acc": (hit.sum(0) / truth.sum(0)).mean()}
    return evaluate

class Server:
    def __init__(self, args, clients, test):
        self.args, self.clients, self.test = args, clients, test
        self.rng = np.random.default_rng(args.seed + 1)
        model = RhythmNet()
        client_tx = optax.chain(optax.clip_by_global_norm(5.0), optax.trace(decay=0.9))
        server_tx = optax.sgd(
            optax.warmup_cosine_decay_schedule(0.05, args.server_lr, 50, max(args.steps, 200), 0.02), momentum=0.9)
        self.params = model.init(jax.random.key(args.seed), test["wave"][:1], test["tab"][:1], train=False)["params"]
        self.opt_state = server_tx.init(self.params)
        self.local_update = jax.jit(make_local_update(model, client_tx))
        self.aggregate = jax.jit(make_aggregate(server_tx))
        self.evaluate = jax.jit(make_evaluate(model))
        self.pending = []

    def run_round(self, rnd):
        args = self.args
        lr = args.client_lr * args.lr_decay ** (rnd // args.lr_every)
        cohort = self.rng.choice(len(self.clients), args.cohort, replace=False)
        seeds = self.rng.integers(0, 2**31, args.cohort).astype(np.uint32)
        deltas, losses = [], []
        for cid, seed in zip(cohort, seeds):
            client = self.clients[cid]
            data = client.local_batches(args.local_steps, args.batch)
            delta, loss = self.local_update(self.params, data, seed, lr=lr, mu=args.mu)
            deltas.append(delta)
            losses.append(loss)
        weights = np.array([self.clients[cid].size for cid in cohort], np.float32)
        self.params, self.opt_state, stats = self.aggregate(
            self.params, self.opt_state, tuple(deltas), tuple(losses), weights)
        self.pending.append((cohort, stats))

    def flush(self):
        """Fetch the statistics of the rounds since the last call; returns mean loss and last update norm."""
        pending, self.pending = self.pending, []
        fetched = jax.device_get([stats for _, stats in pending])
        for (cohort, _), stats in zip(pending, fetched):
            for cid, value in zip(cohort, stats["losses"]):
                self.clients[cid].last_loss = float(value)
        return float(np.mean([s["losses"].mean() for s in fetched])), float(fetched[-1]["update_norm"])

    def save(self, folder, rnd):
        state = jax.device_get({"params": self.params, "opt_state": self.opt_state})
        with open(os.path.join(folder, f"server_{rnd:06d}.msgpack"), "wb") as f:
            f.write(serialization.to_bytes(state))

def parse_args():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("steps", nargs="?", type=int, default=2600, help="communication rounds")
    for flag, default in (("clinics", 32), ("cohort", 8), ("local-steps", 10), ("batch", 16), ("client-lr", 0.02),
                          ("lr-decay", 0.997), ("lr-every", 10), ("mu", 0.01), ("server-lr", 0.3), ("log-every", 25),
                          ("eval-every", 50), ("save-every", 250), ("warmup", 5), ("seed", 7)):
        p.add_argument(f"--{flag}", type=type(default), default=default)
    return p.parse_args()

def main():
    args = parse_args()
    logging.basicConfig(stream=sys.stdout, format="%(asctime)s %(name)s: %(message)s", datefmt="%H:%M:%S")
    log.setLevel(logging.INFO)
    class_profile = np.random.default_rng(args.seed + 5).normal(0.0, 0.6, (len(RHYTHMS), N_TAB))
    clients = build_clients(args, class_profile)
    test = build_test_set(args, class_profile)
    log.info("%d clinics, %d windows", len(clients), sum(c.size for c in clients))
    server = Server(args, clients, test)
    with tempfile.TemporaryDirectory(prefix="fed_clinics_") as folder:
        for rnd in range(args.warmup):
            server.run_round(rnd)
        jax.block_until_ready((server.params, server.evaluate(server.params, test)))
        server.flush()
        start = time.perf_counter()
        for step in range(1, args.steps + 1):
            server.run_round(args.warmup + step - 1)
            if step % args.log_every == 0:
                loss, norm = server.flush()
                log.info("round %d client loss %.4f update norm %.4f (%.1f rounds/s)",
                         step, loss, norm, step / (time.perf_counter() - start))
            if step % args.eval_every == 0:
                scores = jax.device_get(server.evaluate(server.params, test))
                worst = max(clients, key=lambda c: -1.0 if np.isnan(c.last_loss) else c.last_loss)
                log.info("round %d test loss %.4f balanced acc %.3f; hardest %s (%.3f)",
                         step, scores["loss"], scores["balanced_acc"], worst.name, worst.last_loss)
            if step % args.save_every == 0:
                server.save(folder, step)
        jax.block_until_ready((server.params, server.opt_state))
        seconds = time.perf_counter() - start
    print(f"done {args.steps} steps in {seconds:.3f} s", flush=True)

if __name__ == "__main__":
    main()
