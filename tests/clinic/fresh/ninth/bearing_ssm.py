"""Diagonal state-space model (LRU) that names bearing faults from vibration records. Haiku, two micro-batches a step."""
import argparse
import time
import typing as tp

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax

CLASSES = 5
LENGTH = 128
MICRO = 2
BATCH = 8


class TrainState(tp.NamedTuple):
    params: hk.Params
    opt: optax.OptState
    step: jax.Array


def ring_init(shape, dtype, r_min=0.8, r_max=0.99):
    u = jax.random.uniform(hk.next_rng_key(), shape, dtype)
    return jnp.log(-0.5 * jnp.log(u * (r_max**2 - r_min**2) + r_min**2))


class LRU(hk.Module):
    def __init__(self, state, width, name=None):
        super().__init__(name)
        self.state, self.width = state, width

    def __call__(self, u):                                   # (T, width)
        n, d = self.state, self.width
        nu = hk.get_parameter("nu", (n,), init=ring_init)
        theta = hk.get_parameter("theta", (n,), init=hk.initializers.RandomUniform(0.0, 3.1))
        b = hk.get_parameter("b", (d, 2 * n), init=hk.initializers.VarianceScaling())
        c = hk.get_parameter("c", (2 * n, d), init=hk.initializers.VarianceScaling())
        skip = hk.get_parameter("skip", (d,), init=jnp.ones)
        mag = jnp.exp(-jnp.exp(nu))
        lam = mag * jnp.exp(1j * theta)
        bu = (u @ b) * jnp.sqrt(1 - jnp.tile(mag, 2) ** 2)
        bu = jax.lax.complex(bu[:, :n], bu[:, n:])

        def combine(a, b):
            return a[0] * b[0], b[0] * a[1] + b[1]

        _, x = jax.lax.associative_scan(combine, (jnp.broadcast_to(lam, bu.shape), bu))
        return jnp.concatenate([x.real, x.imag], -1) @ c + skip * u


class Block(hk.Module):
    def __call__(self, u):
        d = u.shape[-1]
        h = hk.LayerNorm(-1, True, True)(u)
        h = jax.nn.gelu(LRU(16, d)(h))
        gate = jax.nn.sigmoid(hk.Linear(d)(h))
        return u + gate * hk.Linear(d)(h)


def network(sig):                                            # (T, 2): two accelerometers
    h = hk.Linear(32)(sig)
    for _ in range(2):
        h = Block()(h)
    return hk.Linear(CLASSES)(h.mean(0))


net = hk.without_apply_rng(hk.transform(network))
tx = optax.chain(optax.clip_by_global_norm(1.0), optax.lion(optax.cosine_decay_schedule(3e-4, 20_000)))


def loss_fn(params, sig, label):
    logits = jax.vmap(net.apply, (None, 0))(params, sig)
    soft = optax.smooth_labels(jax.nn.one_hot(label, CLASSES), 0.05)
    return optax.softmax_cross_entropy(logits, soft).mean()


def update(state, sig, label):
    def micro(acc, xs):
        loss, g = jax.value_and_grad(loss_fn)(state.params, *xs)
        return jax.tree.map(jnp.add, acc, g), loss

    zeros = jax.tree.map(jnp.zeros_like, state.params)
    grads, losses = jax.lax.scan(micro, zeros, (sig, label))
    grads = jax.tree.map(lambda g: g / MICRO, grads)
    upd, opt = tx.update(grads, state.opt, state.params)
    metrics = {"loss": losses.mean(), "gnorm": optax.global_norm(grads)}
    return TrainState(optax.apply_updates(state.params, upd), opt, state.step + 1), metrics


class Rig:
    """Simulates the test rig: shaft harmonics, fault impulses, sensor noise."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.t = np.arange(LENGTH, dtype=np.float32)
        self.rate = np.array([0.0, 0.071, 0.093, 0.127, 0.158], np.float32)

    def record(self, n):
        r = self.rng
        label = r.integers(0, CLASSES, n).astype(np.int32)
        speed = r.uniform(0.8, 1.2, (n, 1)).astype(np.float32)
        sig = r.standard_normal((n, LENGTH, 2), dtype=np.float32) * 0.3
        for harm in (1, 2):
            ph = r.uniform(0, 6.28, (n, 1)).astype(np.float32)
            sig += (np.sin(0.05 * harm * speed * self.t + ph) / harm)[..., None]
        beat = np.mod(self.rate[label][:, None] * speed * self.t, 1.0)
        burst = np.exp(-12 * beat) * (label > 0)[:, None]
        sig[..., 0] += burst
        sig[..., 1] += 0.5 * np.roll(burst, 3, axis=1)
        return sig, label

    def __iter__(self):
        while True:
            sig, label = self.record(MICRO * BATCH)
            yield sig.reshape(MICRO, BATCH, LENGTH, 2), label.reshape(MICRO, BATCH)


def run(steps, warm=5):
    sig, label = next(iter(Rig(5)))
    params = net.init(jax.random.key(0), sig[0, 0])
    state = TrainState(params, tx.init(params), jnp.zeros((), jnp.int32))
    step_fn = jax.jit(update, donate_argnums=(0,))
    val_loss = jax.jit(loss_fn)
    val = Rig(17).record(64)
    best = np.inf
    start = None
    for n, (sig, label) in enumerate(Rig(1)):
        if n == warm:
            jax.block_until_ready(state)
            start = time.perf_counter()
        if n == steps + warm:
            break
        state, metrics = step_fn(state, sig, label)
        if n % 50 == 0:
            print("step %d loss %.4f gnorm %.3f" % (n, metrics["loss"], metrics["gnorm"]), flush=True)
        if n % 1000 == 999:
            best = min(best, float(val_loss(state.params, *val)))
            print("   best validation loss %.4f" % best, flush=True)
    jax.block_until_ready(state)
    print("done %d steps in %.3f s" % (steps, time.perf_counter() - start))


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("steps", nargs="?", type=int, default=6000)
    run(ap.parse_args().steps)
