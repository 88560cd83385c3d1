"""Masked language model of DNA 4-mers over sequencing sessions.

A session is a stretch of consecutive, in-frame 4-mers read from one strand of a
contig.  The encoder (haiku) recovers masked k-mers and tells the species of the
session.  A Trainer with callbacks drives it; a callback may own a slot of the
traced state (EMA, running metrics), or act on the host only.
"""
import sys
import time
from collections import namedtuple
from dataclasses import dataclass

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax

K = 4
ALPHABET = "ACGT"
N_KMERS = len(ALPHABET) ** K
MASK = N_KMERS                  # the only special token in use
VOCAB_SIZE = N_KMERS + 16       # room for specials, multiple of 16
N_SPECIES = 8


@dataclass
class Config:
    contigs: int = 576
    contig_kmers: int = 1200
    window: int = 32
    batch: int = 48
    dim: int = 32
    heads: int = 2
    layers: int = 2
    lr: float = 3e-3
    mask_rates: tuple = (0.10, 0.25)
    log_every: int = 100
    seed: int = 11
    debug: bool = False


def simulate_contigs(cfg, rng):
    """Contigs as strings, from one sparse Markov chain over 4-mers per species."""
    species = np.arange(cfg.contigs) % N_SPECIES
    successors = rng.integers(0, N_KMERS, (N_SPECIES, N_KMERS, 4))
    edges = np.cumsum([0.62, 0.22, 0.10])
    chain = np.empty((cfg.contigs, cfg.contig_kmers), np.int64)
    state = rng.integers(0, N_KMERS, cfg.contigs)
    for t in range(cfg.contig_kmers):
        chain[:, t] = state
        state = successors[species, state, np.searchsorted(edges, rng.random(cfg.contigs))]
    bases = (chain[..., None] >> np.array([6, 4, 2, 0])) & 3
    letters = np.frombuffer(ALPHABET.encode(), np.uint8)[bases.reshape(cfg.contigs, -1)]
    return [row.tobytes().decode() for row in letters], species.astype(np.int32)


class Corpus:
    """Both strands of all contigs, encoded once; sessions are windows of them."""

    def __init__(self, contigs, species, window, seed):
        self.contigs = contigs
        self.window = window
        self.rng = np.random.default_rng(seed)
        table = np.zeros(128, np.int32)
        table[[ord(base) for base in ALPHABET]] = np.arange(len(ALPHABET))
        raw = np.frombuffer("".join(contigs).encode(), np.uint8)
        bases = table[raw].reshape(len(contigs), -1)
        strands = np.concatenate([bases, 3 - bases[:, ::-1]])
        self.codes = strands.reshape(len(strands), -1, K) @ np.array([64, 16, 4, 1], np.int32)
        self.species = np.concatenate([species, species])
        self.offsets = np.arange(window)

    def draw(self, n):
        rows = self.rng.integers(0, len(self.codes), n)
        starts = self.rng.integers(0, self.codes.shape[1] - self.window + 1, n)
        tokens = self.codes[rows[:, None], starts[:, None] + self.offsets]
        return {"tokens": tokens, "species": self.species[rows]}


def block(x, heads):
    dim = x.shape[-1]
    h = hk.LayerNorm(-1, True, True)(x)
    x = x + hk.MultiHeadAttention(heads, dim // heads, model_size=dim,
                                  w_init=hk.initializers.VarianceScaling(1.0))(h, h, h)
    h = hk.LayerNorm(-1, True, True)(x)
    return x + hk.Linear(dim)(jax.nn.gelu(hk.Linear(2 * dim)(h)))


def make_model(cfg):
    def encoder(tokens):
        x = hk.Embed(VOCAB_SIZE, cfg.dim, name="kmers")(tokens)
        x = x + hk.get_parameter("positions", (cfg.window, cfg.dim),
                                 init=hk.initializers.TruncatedNormal(0.02))
        for _ in range(cfg.layers):
            x = block(x, cfg.heads)
        x = hk.LayerNorm(-1, True, True)(x)
        return (hk.Linear(N_KMERS, name="kmer_head")(x),
                hk.Linear(N_SPECIES, name="species_head")(x.mean(axis=1)))

    return hk.without_apply_rng(hk.transform(encoder))


def corrupt(key, tokens, rate):
    """BERT's recipe: 80 % mask, 10 % another k-mer, 10 % left as it is."""
    k_pick, k_kind, k_swap = jax.random.split(key, 3)
    picked = jax.random.uniform(k_pick, tokens.shape) < rate
    kind = jax.random.uniform(k_kind, tokens.shape)
    swap = jax.random.randint(k_swap, tokens.shape, 0, N_KMERS)
    noisy = jnp.where(kind < 0.8, MASK, jnp.where(kind < 0.9, swap, tokens))
    return jnp.where(picked, noisy, tokens), picked.astype(jnp.float32)


def losses(model, params, inputs, tokens, picked, species):
    kmer_logits, species_logits = model.apply(params, inputs)
    xent = optax.softmax_cross_entropy_with_integer_labels
    masked = jnp.sum(picked)
    mlm = jnp.sum(picked * xent(kmer_logits, tokens)) / jnp.maximum(masked, 1.0)
    session = jnp.mean(xent(species_logits, species))
    own = jnp.take_along_axis(kmer_logits, tokens[..., None], axis=-1)[..., 0]
    hits = jnp.sum(picked * (own >= jnp.max(kmer_logits, axis=-1)))
    return mlm + 0.2 * session, {"mlm": mlm, "session": session, "hits": hits,
                                 "masked": masked, "steps": jnp.ones(())}


class Callback:
    traced = False              # True: init and update make a slot of the jitted step

    def on_fit_start(self, trainer): ...
    def on_step(self, trainer, step): ...
    def on_log(self, trainer, step, logs): ...


class Ema(Callback):
    name, traced, decay = "ema", True, 0.998

    def init(self, params):
        return jax.tree.map(jnp.copy, params)

    def update(self, slot, params, aux):
        return jax.tree.map(lambda s, p: self.decay * s + (1 - self.decay) * p, slot, params)


class RunningMetrics(Callback):
    name, traced = "metrics", True

    def init(self, params):
        return {k: jnp.zeros(()) for k in ("mlm", "session", "hits", "masked", "steps")}

    def update(self, slot, params, aux):
        return jax.tree.map(jnp.add, slot, aux)

    def on_log(self, trainer, step, logs):
        sums = jax.device_get(trainer.state.slots[self.name])
        logs.update({k: float(sums[k] / sums["steps"]) for k in ("mlm", "session")})
        logs["accuracy"] = float(sums["hits"] / max(sums["masked"], 1.0))
        slots = {**trainer.state.slots, self.name: self.init(None)}
        trainer.state = trainer.state._replace(slots=slots)


class MaskCurriculum(Callback):
    def __init__(self, rates, n_steps):
        self.rates, self.n_steps = rates, n_steps

    def on_step(self, trainer, step):
        if step % 50 == 0:
            trainer.mask_rate = np.float32(np.interp(step, [0, self.n_steps], self.rates))


class EarlyStopping(Callback):
    """Scores the averaged weights on held-out contigs now and then."""

    def __init__(self, corpus, every, patience):
        self.batch, self.every, self.patience = corpus.draw(192), every, patience
        self.best, self.bad = float("inf"), 0

    def on_fit_start(self, trainer):
        tokens, species = jnp.asarray(self.batch["tokens"]), jnp.asarray(self.batch["species"])
        inputs, picked = corrupt(jax.random.PRNGKey(0), tokens, 0.15)
        self.score = jax.jit(lambda params: losses(
            trainer.model, params, inputs, tokens, picked, species)[1]["mlm"])
        self.score(trainer.state.slots["ema"]).block_until_ready()  # compiled before the start

    def on_log(self, trainer, step, logs):
        if step % self.every == 0:
            logs["val_mlm"] = float(self.score(trainer.state.slots["ema"]))
            self.bad = 0 if logs["val_mlm"] < self.best else self.bad + 1
            self.best = min(self.best, logs["val_mlm"])
            trainer.stop = self.bad >= self.patience


TrainState = namedtuple("TrainState", "params opt_state slots key")


class Trainer:
    def __init__(self, cfg, model, optimiser, callbacks):
        self.cfg, self.model, self.optimiser = cfg, model, optimiser
        self.callbacks = callbacks
        self.mask_rate, self.stop = np.float32(cfg.mask_rates[0]), False
        k_init, key = jax.random.split(jax.random.PRNGKey(cfg.seed))
        params = jax.jit(model.init)(k_init, jnp.zeros((1, cfg.window), jnp.int32))
        slots = {cb.name: cb.init(params) for cb in callbacks if cb.traced}
        self.state = TrainState(params, optimiser.init(params), slots, key)
        self.step = jax.jit(self._train_step, donate_argnums=0)

    def _train_step(self, state, batch, rate):
        key, k_mask = jax.random.split(state.key)
        inputs, picked = corrupt(k_mask, batch["tokens"], rate)
        grads, aux = jax.grad(lambda params: losses(
            self.model, params, inputs, batch["tokens"], picked, batch["species"]
        ), has_aux=True)(state.params)
        updates, opt_state = self.optimiser.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        slots = {cb.name: cb.update(state.slots[cb.name], params, aux)
                 for cb in self.callbacks if cb.traced}
        return TrainState(params, opt_state, slots, key)

    def fit(self, corpus, n_steps):
        for cb in self.callbacks:
            cb.on_fit_start(self)
        skip, done, start = n_steps // 4, 0, time.perf_counter()
        while done < n_steps and not self.stop:
            if done == skip:
                jax.block_until_ready(self.state)
                start = time.perf_counter()
            batch = corpus.draw(self.cfg.batch)
            self.state = self.step(self.state, batch, self.mask_rate)
            done += 1
            for cb in self.callbacks:
                cb.on_step(self, done)
            if done % self.cfg.log_every == 0:
                logs = {}
                for cb in self.callbacks:
                    cb.on_log(self, done, logs)
                print(f"step {done:6d}", *(f"{k} {v:.4f}" for k, v in logs.items()), flush=True)
        jax.block_until_ready(self.state)
        return done - skip, time.perf_counter() - start


def main():
    n_steps = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
    cfg = Config()
    if cfg.debug:
        jax.config.update("jax_disable_jit", True)  # so that pdb can walk through the encoder
    contigs, species = simulate_contigs(cfg, np.random.default_rng(cfg.seed))
    train = Corpus(contigs[64:], species[64:], cfg.window, seed=1)
    valid = Corpus(contigs[:64], species[:64], cfg.window, seed=2)

    schedule = optax.warmup_cosine_decay_schedule(
        0.0, cfg.lr, max(1, n_steps // 20), n_steps + 1, 0.05 * cfg.lr)
    optimiser = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule))
    callbacks = [Ema(), RunningMetrics(), MaskCurriculum(cfg.mask_rates, n_steps),
                 EarlyStopping(valid, every=500, patience=10)]
    trainer = Trainer(cfg, make_model(cfg), optimiser, callbacks)
    steps, seconds = trainer.fit(train, n_steps)
    print(f"done {steps} steps in {seconds:.3f} s")


if __name__ == "__main__":
    main()
