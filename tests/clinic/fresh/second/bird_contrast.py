"""Contrastive learning of bird calls without labels: equinox model, grain pipeline, callbacks.

Each call is heard twice through random shifts, gains, noise and masked bands, all within the jitted step;
the pipeline only shuffles, batches and prefetches raw 16 bit clips.

    python bird_contrast.py [STEPS]
"""
import sys
import time

import equinox as eqx
import grain
import jax
import jax.numpy as jnp
import numpy as np
import optax

RATE, SECONDS = 4000, 1.0
SAMPLES = int(RATE * SECONDS)
SPECIES, PER_SPECIES = 40, 80
FRAME, HOP, BANDS = 256, 64, 48
BATCH = 48
EMBED = 64
TEMPERATURE = 0.15
KERNEL = 5
PROBE_EVERY = 500


# ----------------------------------------------------------------- calls

def make_calls(seed):
    """Whistles with species-specific sweep, vibrato and rhythm, as int16 clips."""
    rng = np.random.default_rng(seed)
    t = np.arange(SAMPLES) / RATE
    clips, species = [], np.repeat(np.arange(SPECIES), PER_SPECIES)
    for _ in range(SPECIES):
        base, sweep = rng.uniform(500, 1400), rng.uniform(-400, 400)
        vibrato, depth, beat = rng.uniform(4, 30), rng.uniform(0, 120), rng.uniform(2, 9)
        n = (PER_SPECIES, 1)
        f = base * rng.uniform(0.94, 1.06, n) + sweep * t + depth * np.sin(2 * np.pi * vibrato * t + rng.uniform(0, 6, n))
        gate = np.clip(4 * np.sin(2 * np.pi * beat * rng.uniform(0.9, 1.1, n) * t + rng.uniform(0, 6, n)), 0, 1)
        wave = gate * np.sin(2 * np.pi * np.cumsum(f, 1) / RATE) * rng.uniform(0.3, 0.9, n)
        clips.append(wave + 0.02 * rng.standard_normal(wave.shape))
    return (np.concatenate(clips).clip(-1, 1) * 32000).astype(np.int16), species


class Clips(grain.sources.RandomAccessDataSource):
    """The raw clips by number."""

    def __init__(self, clips):
        self.clips = clips

    def __len__(self):
        return len(self.clips)

    def __getitem__(self, i):
        return self.clips[i]


def pipeline(clips, seed):
    data = grain.MapDataset.source(Clips(clips)).seed(seed).shuffle().repeat()
    data = data.batch(BATCH, drop_remainder=True)
    return iter(data.to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=8)))


# ----------------------------------------------------------------- sound to picture

def mel_matrix():
    freqs = np.fft.rfftfreq(FRAME, 1 / RATE)
    mel = np.linspace(0, 2595 * np.log10(1 + RATE / 2 / 700), BANDS + 2)
    hz = 700 * (10 ** (mel / 2595) - 1)
    up = (freqs[:, None] - hz[:-2]) / (hz[1:-1] - hz[:-2])
    down = (hz[2:] - freqs[:, None]) / (hz[2:] - hz[1:-1])
    return np.maximum(0, np.minimum(up, down))


MEL = mel_matrix().astype(np.float32)
WINDOW = np.hanning(FRAME).astype(np.float32)


def spectrogram(wave):
    """[batch, samples] -> [batch, bands, frames]"""
    starts = np.arange(0, SAMPLES - FRAME + 1, HOP)
    frames = wave[:, starts[:, None] + np.arange(FRAME)] * WINDOW
    power = jnp.abs(jnp.fft.rfft(frames)) ** 2
    return jnp.swapaxes(jnp.log(power @ MEL + 1e-3), 1, 2) / 5


def augment(wave, key):
    n = wave.shape[0]
    k = jax.random.split(key, 4)
    wave = jax.vmap(jnp.roll)(wave, jax.random.randint(k[0], (n,), -800, 800))
    wave = wave * jnp.exp(jax.random.uniform(k[1], (n, 1), minval=-0.7, maxval=0.7))
    wave = wave + 0.05 * jax.random.uniform(k[2], (n, 1)) * jax.random.normal(k[2], wave.shape)
    picture = spectrogram(wave)
    low = jax.random.randint(k[3], (n, 1, 1), 0, BANDS - 6)
    band = jnp.arange(BANDS)[None, :, None]
    return jnp.where((band >= low) & (band < low + 6), 0.0, picture)


class Encoder(eqx.Module):
    convs: list
    norms: list
    head: eqx.nn.MLP

    def __init__(self, key):
        k = jax.random.split(key, 4)
        sizes = [BANDS, 64, 96, 128]
        self.convs = [eqx.nn.Conv1d(a, b, KERNEL, stride=2, padding=KERNEL // 2, key=kk)
                      for a, b, kk in zip(sizes[:-1], sizes[1:], k)]
        self.norms = [eqx.nn.GroupNorm(8, s) for s in sizes[1:]]
        self.head = eqx.nn.MLP(128, EMBED, 128, 1, key=k[3])

    def __call__(self, picture):
        h = picture
        for conv, norm in zip(self.convs, self.norms):
            h = jax.nn.silu(norm(conv(h)))
        z = self.head(h.mean(-1))
        return z / (jnp.linalg.norm(z) + 1e-6)


def nt_xent(model, one, two):
    z = jnp.concatenate([jax.vmap(model)(one), jax.vmap(model)(two)])
    n = one.shape[0]
    sim = z @ z.T / TEMPERATURE - 1e9 * jnp.eye(2 * n, dtype=z.dtype)
    partner = (jnp.arange(2 * n) + n) % (2 * n)
    logp = jax.nn.log_softmax(sim)
    return -logp[jnp.arange(2 * n), partner].mean()


@eqx.filter_jit
def embed(model, clips):
    return jax.vmap(model)(spectrogram(clips.astype(jnp.float32) / 32768))


# ----------------------------------------------------------------- trainer and callbacks

class Callback:
    def on_step(self, trainer): ...
    def on_end(self, trainer): ...


class Probe(Callback):
    """Nearest-neighbour accuracy on a fixed sample of clips."""

    def __init__(self, clips, species, every):
        self.every = every
        pick = np.random.default_rng(0).permutation(len(clips))[:600]
        self.clips, self.species = jax.device_put(clips[pick]), species[pick]

    def measure(self, trainer):
        z = np.asarray(embed(trainer.model, self.clips))
        sim = z @ z.T - 9 * np.eye(len(z), dtype=z.dtype)
        return float((self.species[sim.argmax(1)] == self.species).mean())

    def on_step(self, trainer):
        if trainer.count % self.every == 0:
            print(f"step {trainer.count} loss {float(trainer.loss):.3f} probe {self.measure(trainer):.3f}", flush=True)

    def on_end(self, trainer):
        print(f"final probe {self.measure(trainer):.3f}")


class Stopwatch(Callback):
    def __init__(self, warm=5):
        self.warm = warm

    def on_step(self, trainer):
        if trainer.count == self.warm:
            trainer.block()
            self.start = time.perf_counter()

    def on_end(self, trainer):
        print(f"done {trainer.count - self.warm} steps in {trainer.ended - self.start:.3f} s")


class Trainer:
    def __init__(self, callbacks):
        self.model = Encoder(jax.random.PRNGKey(0))
        self.optim = optax.adamw(1e-3, weight_decay=1e-4)
        self.opt_state = self.optim.init(eqx.filter(self.model, eqx.is_array))
        self.key = jax.random.PRNGKey(1)
        self.callbacks, self.count = callbacks, 0

        @eqx.filter_jit(donate="all")
        def update(model, opt_state, key, clips):
            key, k1, k2 = jax.random.split(key, 3)
            wave = clips.astype(jnp.float32) / 32768
            loss, grads = eqx.filter_value_and_grad(nt_xent)(model, augment(wave, k1), augment(wave, k2))
            updates, opt_state = self.optim.update(grads, opt_state, eqx.filter(model, eqx.is_array))
            return eqx.apply_updates(model, updates), opt_state, key, loss
        self.update = update

    def block(self):
        jax.block_until_ready(eqx.filter(self.model, eqx.is_array))

    def fit(self, stream, steps):
        while self.count < steps:
            clips = next(stream)
            self.model, self.opt_state, self.key, self.loss = self.update(self.model, self.opt_state, self.key, clips)
            self.count += 1
            for c in self.callbacks:
                c.on_step(self)
        self.block()
        self.ended = time.perf_counter()
        for c in self.callbacks:
            c.on_end(self)


if __name__ == "__main__":
    calls, kinds = make_calls(seed=4)
    trainer = Trainer([Probe(calls, kinds, PROBE_EVERY), Stopwatch()])
    trainer.fit(pipeline(calls, seed=8), int(sys.argv[1]) if len(sys.argv) > 1 else 4500)
