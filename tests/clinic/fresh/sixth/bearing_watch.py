"""Online learning of bearing faults: score new windows, keep the doubtful ones, train on the kept."""
import collections
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import optax

MACHINES = 12
PER_MACHINE = 24
WINDOW = 1024
CLASSES = 5
KEEP = 24
CAPACITY = 12288
TRAIN_BATCH = 768
HIDDEN = 192

Event = collections.namedtuple("Event", "round machine kind note")


def record_shop_floor(seconds=200, seed=2):
    """Pool of vibration windows of all machines, (machines, n, WINDOW) and their classes."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, CLASSES, (MACHINES, seconds))
    t = np.arange(WINDOW, dtype=np.float32) / WINDOW
    freq = np.array([20, 43, 67, 91, 130], np.float32)[kinds][..., None]
    carrier = np.sin(2 * np.pi * 300 * t).astype(np.float32)
    x = (1 + 0.6 * np.sin(2 * np.pi * freq * t)) * carrier
    x += 0.7 * rng.standard_normal(x.shape, dtype=np.float32)
    return x.astype(np.float32), kinds.astype(np.int32)


def envelope(x):
    """amplitude of the analytic signal"""
    spec = jnp.fft.fft(x, axis=-1)
    half = jnp.zeros(WINDOW).at[0].set(1).at[1:WINDOW // 2].set(2).at[WINDOW // 2].set(1)
    return jnp.abs(jnp.fft.ifft(spec * half, axis=-1))


def init_net(key, sizes):
    keys = jax.random.split(key, len(sizes) - 1)
    return [{"w": jax.random.normal(k, (i, o)) * jnp.sqrt(2 / i), "b": jnp.zeros(o)}
            for k, i, o in zip(keys, sizes[:-1], sizes[1:])]


def logits_of(net, x):
    env = envelope(x)
    h = (env - env.mean(-1, keepdims=True)) / (env.std(-1, keepdims=True) + 1e-3)
    for layer in net[:-1]:
        h = jax.nn.silu(h @ layer["w"] + layer["b"])
    return h @ net[-1]["w"] + net[-1]["b"]


class Watcher:
    def __init__(self, seed=0):
        key = jax.random.PRNGKey(seed)
        net = init_net(key, [WINDOW, HIDDEN, HIDDEN, CLASSES])
        self.tx = optax.sgd(optax.constant_schedule(0.02), momentum=0.9, nesterov=True)
        self.state = {
            "net": net,
            "opt": self.tx.init(net),
            "ring_x": jnp.zeros((CAPACITY, WINDOW)),
            "ring_y": jnp.zeros((CAPACITY,), jnp.int32),
            "head": jnp.zeros((), jnp.int32),
            "key": key,
        }
        self.doubt = jax.jit(self._doubt)
        self.learn = jax.jit(self._learn, donate_argnums=0)

    @staticmethod
    def _doubt(net, x):
        logp = jax.nn.log_softmax(logits_of(net, x))
        return -(jnp.exp(logp) * logp).sum(-1)

    def _learn(self, state, x, y, doubt):
        # keep the windows that the net doubts most
        _, top = jax.lax.top_k(doubt, KEEP)
        at = state["head"] % CAPACITY
        ring_x = jax.lax.dynamic_update_slice(state["ring_x"], x[top], (at, 0))
        ring_y = jax.lax.dynamic_update_slice(state["ring_y"], y[top], (at,))
        head = state["head"] + KEEP
        key, sub = jax.random.split(state["key"])
        rows = jax.random.randint(sub, (TRAIN_BATCH,), 0, jnp.minimum(head, CAPACITY))
        bx, by = ring_x[rows], ring_y[rows]

        def loss_fn(net):
            return optax.softmax_cross_entropy_with_integer_labels(logits_of(net, bx), by).mean()

        loss, grads = jax.value_and_grad(loss_fn)(state["net"])
        up, opt = self.tx.update(grads, state["opt"])
        net = optax.apply_updates(state["net"], up)
        return {"net": net, "opt": opt, "ring_x": ring_x, "ring_y": ring_y, "head": head, "key": key}, loss

    def score(self, x):
        return self.doubt(self.state["net"], x.reshape(-1, WINDOW))

    def round(self, x, y):
        doubt = self.score(x)
        self.state, loss = self.learn(self.state, x.reshape(-1, WINDOW), y.reshape(-1), doubt)
        return loss


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 20000
    x_pool, y_pool = record_shop_floor()
    n = x_pool.shape[1] - PER_MACHINE
    watcher = Watcher()
    events = collections.deque(maxlen=5000)
    start = None
    for r in range(-10, rounds):
        if r == 0:
            jax.block_until_ready(watcher.state)
            start = time.monotonic()
        at = (r * PER_MACHINE) % n
        x, y = x_pool[:, at:at + PER_MACHINE], y_pool[:, at:at + PER_MACHINE]
        loss = watcher.round(x, y)
        events.append(Event(r, r % MACHINES, int(y[r % MACHINES, 0]), "seen"))
        if r > 0 and r % 1000 == 999:
            print(f"round {r + 1}: loss {float(loss):.3f}, {len(events)} events")
    jax.block_until_ready(watcher.state)
    print(f"done {rounds} steps in {time.monotonic() - start:.4f} s")


if __name__ == "__main__":
    main()
