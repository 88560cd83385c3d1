"""A one-dimensional GAN (flax nnx) that draws heart beats.

Discriminator and generator take turns inside a trainer object; R1 penalty, a running average of the
generator for the samples, and a crude quality score now and then.

    python ecg_gan.py [STEPS]
"""
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

LENGTH = 256
LATENT = 32
BATCH = 32
BEATS = 12_000
R1_WEIGHT = 0.5
AVERAGE = 0.995
SCORE_EVERY = 400


def heart_beats(count, seed):
    """Sums of bumps (P, Q, R, S, T) of varying place, width and height, with baseline wander."""
    rng = np.random.default_rng(seed)
    t = np.linspace(0, 1, LENGTH)[None, :, None]
    place = np.array([0.22, 0.38, 0.42, 0.46, 0.68]) + 0.012 * rng.standard_normal((count, 5))
    place += 0.03 * rng.standard_normal((count, 1))
    width = np.array([0.030, 0.011, 0.013, 0.012, 0.055]) * np.exp(0.15 * rng.standard_normal((count, 5)))
    height = np.array([0.16, -0.14, 1.0, -0.24, 0.30]) * np.exp(0.2 * rng.standard_normal((count, 5)))
    bumps = height[:, None] * np.exp(-0.5 * ((t - place[:, None]) / width[:, None]) ** 2)
    wander = 0.05 * np.sin(2 * np.pi * (t[..., 0] * rng.random((count, 1)) + rng.random((count, 1))))
    return bumps.sum(-1) + wander + 0.01 * rng.standard_normal((count, LENGTH))


class Generator(nnx.Module):
    def __init__(self, rngs):
        self.stem = nnx.Linear(LATENT, 16 * 64, rngs=rngs)
        self.up1 = nnx.ConvTranspose(64, 48, (8,), strides=(4,), rngs=rngs)
        self.up2 = nnx.ConvTranspose(48, 24, (8,), strides=(4,), rngs=rngs)
        self.mix = nnx.Conv(24, 24, (9,), rngs=rngs)
        self.out = nnx.Conv(24, 1, (9,), rngs=rngs)

    def __call__(self, z):
        h = nnx.relu(self.stem(z)).reshape(-1, 16, 64)
        h = nnx.leaky_relu(self.up1(h), 0.2)
        h = nnx.leaky_relu(self.up2(h), 0.2)
        h = nnx.leaky_relu(self.mix(h), 0.2) + h
        return self.out(h)[..., 0]


class Discriminator(nnx.Module):
    def __init__(self, rngs):
        self.c1 = nnx.Conv(1, 24, (9,), strides=(2,), rngs=rngs)
        self.c2 = nnx.Conv(24, 48, (9,), strides=(4,), rngs=rngs)
        self.c3 = nnx.Conv(48, 64, (9,), strides=(4,), rngs=rngs)
        self.head = nnx.Linear(8 * 64, 1, rngs=rngs)

    def __call__(self, x):
        h = x[..., None]
        for conv in (self.c1, self.c2, self.c3):
            h = nnx.leaky_relu(conv(h), 0.2)
        return self.head(h.reshape(x.shape[0], -1))[:, 0]


def d_loss(disc, real, fake):
    def score(x):
        return disc(x).sum()
    slope = jax.grad(score)(real)
    r1 = jnp.mean(jnp.sum(slope ** 2, -1))
    logits_real, logits_fake = disc(real), disc(fake)
    loss = jax.nn.softplus(-logits_real).mean() + jax.nn.softplus(logits_fake).mean()
    return loss + 0.5 * R1_WEIGHT * r1, (logits_real.mean(), logits_fake.mean())


def g_loss(gen, disc, z):
    return jax.nn.softplus(-disc(gen(z))).mean()


@nnx.jit
def update_discriminator(disc, opt, gen, beats, z, rows):
    fake = jax.lax.stop_gradient(gen(z))
    (loss, scores), grads = nnx.value_and_grad(d_loss, has_aux=True)(disc, beats[rows], fake)
    opt.update(disc, grads)
    return loss, scores


@nnx.jit
def update_generator(gen, opt, disc, z):
    loss, grads = nnx.value_and_grad(g_loss)(gen, disc, z)
    opt.update(gen, grads)
    return loss


@jax.jit
def blend(average, new):
    return jax.tree.map(lambda a, b: AVERAGE * a + (1 - AVERAGE) * b, average, new)


class Trainer:
    def __init__(self, beats, seed=0):
        self.beats = beats
        self.rng = np.random.default_rng(seed)
        self.gen = Generator(nnx.Rngs(1))
        self.disc = Discriminator(nnx.Rngs(2))
        self.gen_opt = nnx.Optimizer(self.gen, optax.adam(4e-4, b1=0.5), wrt=nnx.Param)
        self.disc_opt = nnx.Optimizer(self.disc, optax.adam(4e-4, b1=0.5), wrt=nnx.Param)
        self.average = jax.tree.map(jnp.copy, nnx.state(self.gen, nnx.Param))
        self.template = nnx.graphdef(self.gen)
        self.sample = jax.jit(lambda params, z: nnx.merge(self.template, params)(z))
        self.history = []

    def latent(self):
        return self.rng.standard_normal((BATCH, LATENT)).astype(np.float32)

    def step(self):
        rows = self.rng.integers(0, self.beats.shape[0], BATCH)
        self.d, self.scores = update_discriminator(self.disc, self.disc_opt, self.gen, self.beats,
                                                   self.latent(), rows)
        self.g = update_generator(self.gen, self.gen_opt, self.disc, self.latent())
        self.average = blend(self.average, nnx.state(self.gen, nnx.Param))

    def settle(self):
        jax.block_until_ready((self.average, nnx.state(self.disc)))

    def quality(self):
        """Distance between mean and spread of real and drawn beats."""
        z = np.concatenate([self.latent() for _ in range(8)])
        drawn = np.asarray(self.sample(self.average, z))
        real = np.asarray(self.beats[:2000])
        return float(np.abs(drawn.mean(0) - real.mean(0)).mean() + np.abs(drawn.std(0) - real.std(0)).mean())

    def report(self, i):
        self.history.append((i, float(self.d), float(self.g), self.quality()))
        print("step %d  d %.3f  g %.3f  distance %.4f" % self.history[-1], flush=True)


def run(steps):
    beats = jax.device_put(heart_beats(BEATS, seed=5).astype(np.float32))
    trainer = Trainer(beats)
    for _ in range(5):
        trainer.step()
    trainer.settle()
    start = time.perf_counter()
    for i in range(5, steps):
        trainer.step()
        if i % SCORE_EVERY == 0:
            trainer.report(i)
    trainer.settle()
    seconds = time.perf_counter() - start
    trainer.report(steps)
    print(f"done {steps - 5} steps in {seconds:.3f} s")


if __name__ == "__main__":
    run(int(sys.argv[1]) if len(sys.argv) > 1 else 2200)
