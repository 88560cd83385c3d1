"""Intrusion scoring on NetFlow-like records: categorical embeddings + counters, plain jax."""
import gc
import ipaddress
import sys
import time
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

PROTO, PORTS, HOSTS, NUM = 4, 512, 2048, 12
WINDOW = 256


class Flow(NamedTuple):
    src: str
    dst: str
    proto: int
    port: int
    counters: tuple
    attack: int


class Host:
    """What the sensor knows of one address."""

    def __init__(self, addr, net):
        self.addr = addr
        self.peers = {}
        self.seen = [net]
        self.tags = {"site": addr.split(".")[1], "role": []}


class Inventory:
    def __init__(self, rng, n=HOSTS):
        net = ipaddress.ip_network("10.0.0.0/16")
        self.hosts = [Host(str(net[int(i)]), net) for i in rng.choice(65000, n, replace=False)]
        self.index = {h.addr: i for i, h in enumerate(self.hosts)}
        for h in self.hosts:
            for p in rng.integers(0, n, 24):
                h.peers[int(p)] = [self.hosts[p], {"bytes": [0, 0], "first": [int(p)]}]


def capture(rng, inventory, n):
    """Synthetic capture, as the collector stores it, already turned into columns."""
    attack = (rng.random(n) < 0.15).astype(np.int32)
    shift = rng.standard_normal(NUM) * 0.7
    return {
        "src": rng.integers(0, HOSTS, n).astype(np.int32),
        "dst": rng.zipf(1.4, n).astype(np.int64).clip(0, HOSTS - 1).astype(np.int32),
        "proto": rng.integers(0, PROTO, n).astype(np.int32),
        "port": np.where(attack, rng.integers(0, PORTS, n), rng.integers(0, 40, n)).astype(np.int32),
        "num": (rng.standard_normal((n, NUM)) + attack[:, None] * shift).astype(np.float32),
        "attack": attack,
    }


def windows(cols, rng):
    n = len(cols["attack"])
    while True:
        lo = int(rng.integers(0, n - WINDOW))
        size = 16 * int(rng.integers(WINDOW // 32, WINDOW // 16 + 1))
        batch = {k: v[lo:lo + WINDOW] for k, v in cols.items()}
        batch["mask"] = (np.arange(WINDOW) < size).astype(np.float32)
        yield batch


def init(key, dims=(16 * 4 + NUM, 192, 192, 96)):
    ks = iter(jax.random.split(key, 16))
    emb = {k: 0.1 * jax.random.normal(next(ks), (n, 16)) for k, n in
           dict(src=HOSTS, dst=HOSTS, proto=PROTO, port=PORTS).items()}
    mlp = [{"w": jax.random.normal(next(ks), (a, b)) * (2 / a) ** 0.5, "b": jnp.zeros(b), "g": jnp.ones(b)}
           for a, b in zip(dims[:-1], dims[1:])]
    return {"emb": emb, "mlp": mlp, "out": {"w": 0.05 * jax.random.normal(next(ks), (dims[-1], 1)), "b": jnp.zeros(1)}}


def score(params, batch):
    parts = [params["emb"][k][batch[k]] for k in ("src", "dst", "proto", "port")]
    h = jnp.concatenate(parts + [batch["num"]], axis=-1)
    for layer in params["mlp"]:
        h = h @ layer["w"] + layer["b"]
        h = jax.nn.gelu(h * layer["g"] * jax.lax.rsqrt(jnp.mean(h * h, -1, keepdims=True) + 1e-6))
    return (h @ params["out"]["w"] + params["out"]["b"])[:, 0]


def loss_fn(params, batch):
    z = score(params, batch)
    y = batch["attack"].astype(z.dtype)
    ce = optax.sigmoid_binary_cross_entropy(z, y)
    focal = ce * (1 - jnp.exp(-ce)) ** 2
    return (focal * batch["mask"]).sum() / batch["mask"].sum()


schedule = optax.cosine_onecycle_schedule(20000, 3e-3)
tx = optax.chain(optax.clip_by_global_norm(1.0), optax.lamb(schedule, weight_decay=1e-3))


@jax.jit
def gradients(params, batch):
    return jax.value_and_grad(loss_fn)(params, batch)


@partial(jax.jit, donate_argnums=(0, 1))
def update(params, opt_state, grads):
    delta, opt_state = tx.update(grads, opt_state, params)
    return optax.apply_updates(params, delta), opt_state


@jax.jit
def detection_rate(params, batch):
    hit = (score(params, batch) > 0) & (batch["attack"] == 1)
    return hit.sum() / jnp.maximum(1, batch["attack"].sum())


def run(steps):
    rng = np.random.default_rng(5)
    inventory = Inventory(rng)
    cols = capture(rng, inventory, 200_000)
    held_out = {k: v[:4096] for k, v in cols.items()}
    cols = {k: v[4096:] for k, v in cols.items()}
    params = init(jax.random.PRNGKey(2))
    opt_state = tx.init(params)
    feed = windows(cols, rng)
    for _ in range(5):
        loss, grads = gradients(params, next(feed))
        params, opt_state = update(params, opt_state, grads)
    detection_rate(params, held_out)
    jax.block_until_ready(params)

    gc.freeze()
    begin = time.perf_counter()
    for step in range(1, steps + 1):
        batch = next(feed)
        loss, grads = gradients(params, batch)
        params, opt_state = update(params, opt_state, grads)
        if step % 100 == 0:
            print(f"[{step}] focal {loss:.4f}", flush=True)
        if step % 1000 == 0:
            print(f"[{step}] detection {detection_rate(params, held_out):.3f}", flush=True)
    jax.block_until_ready(params)
    print(f"done {steps} steps in {time.perf_counter() - begin:.3f} s")


if __name__ == "__main__":
    run(int(sys.argv[1]) if len(sys.argv) > 1 else 16000)
