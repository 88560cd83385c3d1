"""Adversarial synthesis of woven-textile tiles (flax.nnx, hinge loss)."""
import argparse
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

jax.config.update("jax_default_prng_impl", "rbg")
SIZE = 32
INIT = dict(kernel_init=nnx.initializers.variance_scaling(1.0, "fan_in", "uniform"))


class Generator(nnx.Module):
    def __init__(self, z, ch, rngs):
        self.ch = ch
        self.inp = nnx.Linear(z, 8 * 8 * ch, rngs=rngs, **INIT)
        self.up1 = nnx.Conv(ch, ch, (3, 3), rngs=rngs, **INIT)
        self.up2 = nnx.Conv(ch, ch // 2, (3, 3), rngs=rngs, **INIT)
        self.rgb = nnx.Conv(ch // 2, 1, (3, 3), rngs=rngs, **INIT)

    def __call__(self, z):
        x = nnx.relu(self.inp(z)).reshape(-1, 8, 8, self.ch)
        for conv in (self.up1, self.up2):
            x = x.repeat(2, axis=1).repeat(2, axis=2)
            x = nnx.leaky_relu(conv(x), 0.2)
        return jnp.tanh(self.rgb(x))


class Critic(nnx.Module):
    def __init__(self, ch, rngs):
        self.stem = nnx.Conv(1, ch, (4, 4), strides=2, rngs=rngs, **INIT)
        self.mid = nnx.Conv(ch, 2 * ch, (4, 4), strides=2, rngs=rngs, **INIT)
        self.out = nnx.Linear(2 * ch * 8 * 8, 1, rngs=rngs, **INIT)

    def __call__(self, x):
        for conv in (self.stem, self.mid):
            x = nnx.leaky_relu(conv(x), 0.2)
        return self.out(x.reshape(x.shape[0], -1))[:, 0]


class Loom:
    """Weaves a stock of cloth once and cuts random tiles from it."""

    def __init__(self, seed, bolts=24, side=256):
        rng = np.random.default_rng(seed)
        u, v = np.meshgrid(np.arange(side), np.arange(side))
        self.cloth = np.empty((bolts, side, side, 1), np.float32)
        for b in range(bolts):
            warp, weft, tilt = rng.uniform(3, 9), rng.uniform(3, 9), rng.uniform(-0.4, 0.4)
            yarn = np.sin(2 * np.pi * (u + tilt * v) / warp) * np.sin(2 * np.pi * (v - tilt * u) / weft)
            self.cloth[b, ..., 0] = np.tanh(1.5 * yarn + 0.1 * rng.standard_normal((side, side)))
        self.rng = rng

    def cut(self, n):
        b, side = self.cloth.shape[:2]
        at = self.rng.integers(0, [b, side - SIZE, side - SIZE], (n, 3))
        return np.stack([self.cloth[i, y:y + SIZE, x:x + SIZE] for i, y, x in at])


def augment(key, x):
    """Brightness, contrast and shift, the same for real and fake tiles."""
    kb, kc, ks = jax.random.split(key, 3)
    n = x.shape[0]
    x = x + 0.2 * (jax.random.uniform(kb, (n, 1, 1, 1)) - 0.5)
    mean = x.mean(axis=(1, 2, 3), keepdims=True)
    x = (x - mean) * (0.75 + 0.5 * jax.random.uniform(kc, (n, 1, 1, 1))) + mean
    shift = jax.random.randint(ks, (2,), -3, 4)
    return jnp.roll(x, shift, axis=(1, 2))


class Trainer:
    def __init__(self, a):
        self.a = a
        gen = Generator(a.z, a.ch, nnx.Rngs(a.seed))
        dis = Critic(a.ch, nnx.Rngs(a.seed + 1))
        self.gdef, g = nnx.split(gen)
        self.ddef, d = nnx.split(dis)
        self.tx = optax.adam(a.lr, b1=0.0, b2=0.9)
        self.g, self.d = (g, self.tx.init(g)), (d, self.tx.init(d))
        self.ema = jax.tree.map(jnp.copy, g)
        self.key = jax.random.key(a.seed)
        self.callbacks = [self.report]
        self._critic = jax.jit(self.critic_update, donate_argnums=0)
        self._generator = jax.jit(self.generator_update, donate_argnums=(0, 2))
        self._sample = jax.jit(self.sample)

    def sample(self, g, key):
        return nnx.merge(self.gdef, g)(jax.random.normal(key, (self.a.batch, self.a.z)))

    def critic_update(self, d, real, fake, key):
        params, opt = d
        both = augment(key, jnp.concatenate([real, fake]))

        def hinge(p):
            score = nnx.merge(self.ddef, p)(both)
            r, f = jnp.split(score, 2)
            return nnx.relu(1 - r).mean() + nnx.relu(1 + f).mean()

        loss, grads = jax.value_and_grad(hinge)(params)
        upd, opt = self.tx.update(grads, opt, params)
        return (optax.apply_updates(params, upd), opt), loss

    def generator_update(self, g, dparams, ema, key):
        params, opt = g
        kz, ka = jax.random.split(key)

        def adversarial(p):
            return -nnx.merge(self.ddef, dparams)(augment(ka, self.sample(p, kz))).mean()

        loss, grads = jax.value_and_grad(adversarial)(params)
        upd, opt = self.tx.update(grads, opt, params)
        params = optax.apply_updates(params, upd)
        ema = jax.tree.map(lambda e, p: e + 0.002 * (p - e), ema, params)
        return (params, opt), ema, loss

    def report(self, i, logs):
        if i % self.a.log_every == 0:
            print(f"{i:5d} critic {logs['d']:.3f} generator {logs['g']:.3f}", flush=True)

    def step(self, real, keys):
        kd, kg, ka = keys
        fake = self._sample(self.g[0], kd)
        self.d, dl = self._critic(self.d, real, fake, ka)
        self.g, self.ema, gl = self._generator(self.g, self.d[0], self.ema, kg)
        return {"d": dl, "g": gl}

    def fit(self, loom, steps, warm=5):
        pool = []
        for i in range(steps + warm):
            if not pool:
                self.key, sub = jax.random.split(self.key)
                pool = list(jax.random.split(sub, (64, 3)))
            if i == warm:
                jax.block_until_ready((self.g, self.d))
                t = time.perf_counter()
            logs = self.step(loom.cut(self.a.batch), pool.pop())
            for cb in self.callbacks:
                cb(i, logs)
        jax.block_until_ready((self.g, self.d))
        return time.perf_counter() - t


def main(argv):
    p = argparse.ArgumentParser()
    p.add_argument("steps", type=int, nargs="?", default=4000)
    p.add_argument("--batch", type=int, default=12)
    p.add_argument("--z", type=int, default=48)
    p.add_argument("--ch", type=int, default=24)
    p.add_argument("--lr", type=float, default=2e-4)
    p.add_argument("--seed", type=int, default=4)
    p.add_argument("--log_every", type=int, default=50)
    a = p.parse_args(argv)
    took = Trainer(a).fit(Loom(a.seed), a.steps)
    print(f"done {a.steps} steps in {took:.3f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
