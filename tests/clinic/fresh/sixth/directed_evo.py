# In-silico directed evolution of a binder. Each round: propose mutants, score them all
# with a sparse mixture-of-experts surrogate, "assay" the best ones with a hidden fitness
# landscape, store the assay in a ring buffer, and fit the surrogate on old and new assays.
import sys
import time
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

AA, LENGTH, DESC = 20, 40, 256
POP, ASSAYED, BATCH = 512, 128, 512
CAPACITY = 65536
EXPERTS, WIDTH = 8, 128


class SparseMoE(nn.Module):
    experts: int
    width: int
    top: int = 2

    @nn.compact
    def __call__(self, h):
        gate = nn.Dense(self.experts, name="router")(h)
        kept, where = jax.lax.top_k(gate, self.top)
        mix = jnp.zeros_like(gate).at[jnp.arange(h.shape[0])[:, None], where].set(nn.softmax(kept))
        init = nn.initializers.lecun_normal(batch_axis=0)
        up = self.param("up", init, (self.experts, h.shape[-1], self.width // 2))
        down = self.param("down", init, (self.experts, self.width // 2, self.width))
        z = nn.gelu(jnp.einsum("nd,edf->enf", h, up))
        return jnp.einsum("ne,enf,efd->nd", mix, z, down)


class Surrogate(nn.Module):
    @nn.compact
    def __call__(self, desc):
        h = nn.gelu(nn.Dense(WIDTH, name="in")(desc))
        h = h + SparseMoE(EXPERTS, WIDTH, name="moe")(nn.LayerNorm()(h))
        return nn.Dense(1, name="fitness")(nn.LayerNorm()(h))[:, 0]


net = Surrogate()
tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(5e-4))
_k = jax.random.split(jax.random.key(99), 3)
PHYSCHEM = jax.random.normal(_k[0], (LENGTH, AA, DESC)) / LENGTH ** 0.5
HIDDEN = jax.random.normal(_k[1], (DESC, 32)) / DESC ** 0.5
READ = jax.random.normal(_k[2], (32,))


def describe(seqs):
    return jnp.einsum("nla,lad->nd", jax.nn.one_hot(seqs, AA), PHYSCHEM)


@jax.jit
def fork(key):
    return tuple(jax.random.split(key, 5))


@jax.jit
def propose(key, parents):
    kp, kx, kc, km, ka = jax.random.split(key, 5)
    mum = parents[jax.random.randint(kp, (POP,), 0, parents.shape[0])]
    dad = parents[jax.random.randint(kx, (POP,), 0, parents.shape[0])]
    child = jnp.where(jax.random.bernoulli(kc, 0.5, mum.shape), mum, dad)
    hit = jax.random.bernoulli(km, 1.5 / LENGTH, child.shape)
    child = jnp.where(hit, jax.random.randint(ka, child.shape, 0, AA), child)
    return child, describe(child)


@jax.jit
def score(params, desc):
    return net.apply(params, desc)


@jax.jit
def assay(key, child, desc, predicted):
    _, best = jax.lax.top_k(predicted + 0.1 * jax.random.normal(key, predicted.shape), ASSAYED)
    d = desc[best]
    return child[best], d, jnp.sin(2 * d @ HIDDEN) @ READ


@partial(jax.jit, donate_argnums=(0,))
def remember(store, at, d, f):
    xs, ys = store
    xs = jax.lax.dynamic_update_slice(xs, d, (at, 0))
    ys = jax.lax.dynamic_update_slice(ys, f, (at,))
    return xs, ys


@jax.jit
def gradients(params, store, filled, key):
    rows = jax.random.randint(key, (BATCH,), 0, filled)
    x, y = store[0][rows], store[1][rows]
    return jax.value_and_grad(lambda p: jnp.mean(optax.huber_loss(net.apply(p, x), y)))(params)


@partial(jax.jit, donate_argnums=(0, 1, 2))
def fit(params, opt, slow, grads):
    updates, opt = tx.update(grads, opt, params)
    params = optax.apply_updates(params, updates)
    slow = optax.incremental_update(params, slow, 0.01)
    return params, opt, slow


def rounds(seed=0):
    """Generator: one yield per round of evolution."""
    key, ki, ks = jax.random.split(jax.random.key(seed), 3)
    params = net.init(ki, jnp.zeros((1, DESC)))
    slow = jax.tree.map(jnp.copy, params)
    opt = tx.init(params)
    parents = jax.random.randint(ks, (ASSAYED, LENGTH), 0, AA)
    store = (jnp.zeros((CAPACITY, DESC)), jnp.zeros(CAPACITY))
    seen = 0
    while True:
        key, k1, k2, *kf = fork(key)
        child, desc = propose(k1, parents)
        guess = score(slow, desc)
        parents, d, f = assay(k2, child, desc, guess)
        store = remember(store, seen % CAPACITY, d, f)
        seen += ASSAYED
        for k in kf:
            loss, grads = gradients(params, store, min(seen, CAPACITY), k)
            params, opt, slow = fit(params, opt, slow, grads)
        yield {"loss": loss, "fitness": f, "params": params}


def main():
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 20000
    evo = rounds()
    for _ in range(6):
        out = next(evo)
    jax.block_until_ready(out)

    t0 = time.perf_counter()
    for i in range(1, n + 1):
        out = next(evo)
        if i % 400 == 0:
            print(f"round {i}: huber {float(out['loss']):.3f} best {float(out['fitness'].max()):.3f}")
    jax.block_until_ready(out)
    print(f"done {n} steps in {time.perf_counter() - t0:.4f} s")


if __name__ == "__main__":
    main()
