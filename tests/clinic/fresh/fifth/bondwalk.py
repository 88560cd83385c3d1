# message passing on small random molecules, plain jnp, hand-written adam
import sys, time
import numpy as np
import jax
import jax.numpy as jnp
from jax import lax

H = 96          # hidden size
N_NODES = 640   # node budget of a padded batch
N_EDGES = 1536  # edge budget
N_GRAPHS = 48
LAYERS = 4
LR, B1, B2 = 1e-3, 0.9, 0.999
FRAG_ROWS, FRAG_DIM = 400_000, 64


def glorot(key, i, o):
    return jax.random.normal(key, (i, o)) * (2.0 / (i + o)) ** 0.5


def init_params(key):
    ks = iter(jax.random.split(key, 64))
    p = {"embed": {"atom": jax.random.normal(next(ks), (16, H)) * 0.1,
                   "frag": glorot(next(ks), FRAG_DIM, H)}}
    for l in range(LAYERS):
        p[f"mp{l}"] = {
            "e1": glorot(next(ks), 2 * H + 1, H), "be1": jnp.zeros(H),
            "e2": glorot(next(ks), H, H), "be2": jnp.zeros(H),
            "n1": glorot(next(ks), 2 * H, H), "bn1": jnp.zeros(H),
            "n2": glorot(next(ks), H, H), "bn2": jnp.zeros(H),
            "g": jnp.ones(H),
        }
    p["out"] = {"w1": glorot(next(ks), H, H), "b1": jnp.zeros(H), "w2": glorot(next(ks), H, 1)}
    return p


def gather_sum(msg, recv):
    return jax.ops.segment_sum(msg, recv, num_segments=N_NODES)


def rms(x, g):
    return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * g


def forward(p, frag_table, b):
    x = p["embed"]["atom"][b["atom"]] + frag_table[b["frag"]] @ p["embed"]["frag"]
    for l in range(LAYERS):
        q = p[f"mp{l}"]
        h = rms(x, q["g"])
        pair = jnp.concatenate([h[b["send"]], h[b["recv"]], b["dist"][:, None]], -1)
        m = jax.nn.silu(pair @ q["e1"] + q["be1"])
        m = jax.nn.silu(m @ q["e2"] + q["be2"]) * b["emask"][:, None]
        agg = gather_sum(m, b["recv"])
        u = jax.nn.silu(jnp.concatenate([h, agg], -1) @ q["n1"] + q["bn1"])
        x = x + u @ q["n2"] + q["bn2"]
    pooled = jax.ops.segment_sum(x, b["graph"], num_segments=N_GRAPHS + 1)[:N_GRAPHS]
    o = p["out"]
    return (jax.nn.silu(pooled @ o["w1"] + o["b1"]) @ o["w2"])[:, 0]


def loss_fn(p, frag_table, b):
    err = forward(p, frag_table, b) - b["y"]
    return jnp.mean(jnp.where(jnp.abs(err) < 1, 0.5 * err * err, jnp.abs(err) - 0.5))


def clip(g, limit=1.0):
    norm = jnp.sqrt(sum(jnp.vdot(x, x) for x in jax.tree.leaves(g)))
    return jax.tree.map(lambda x: x * jnp.minimum(1.0, limit / (norm + 1e-6)), g)


def adam(p, m, v, g, t):
    m = jax.tree.map(lambda a, b: B1 * a + (1 - B1) * b, m, g)
    v = jax.tree.map(lambda a, b: B2 * a + (1 - B2) * b * b, v, g)
    s = LR * jnp.sqrt(1 - B2 ** t) / (1 - B1 ** t)
    p = jax.tree.map(lambda w, a, b: w - s * a / (jnp.sqrt(b) + 1e-8), p, m, v)
    return p, m, v


def ema(avg, p, decay=0.999):
    return jax.tree.map(lambda a, w: decay * a + (1 - decay) * w, avg, p)


def step(carry, frag_table, b):
    p, m, v, avg, t = carry
    loss, g = jax.value_and_grad(loss_fn)(p, frag_table, b)
    t = t + 1
    p, m, v = adam(p, m, v, clip(g), t)
    return (p, m, v, ema(avg, p), t), loss


train_step = jax.jit(step, donate_argnums=0)


def make_batch(rng):
    atom = np.zeros(N_NODES, np.int32)
    frag = np.zeros(N_NODES, np.int32)
    graph = np.full(N_NODES, N_GRAPHS, np.int32)
    send, recv, y = [], [], np.zeros(N_GRAPHS, np.float32)
    start = 0
    for gi in range(N_GRAPHS):
        n = int(rng.integers(8, 14))
        sl = slice(start, start + n)
        atom[sl] = rng.integers(1, 16, n)
        frag[sl] = rng.integers(0, FRAG_ROWS, n)
        graph[sl] = gi
        for j in range(1, n):
            k = int(rng.integers(0, j))
            send += [start + j, start + k]
            recv += [start + k, start + j]
        y[gi] = atom[sl].mean() / 8 - 1
        start += n
    e = len(send)
    order = np.argsort(recv, kind="stable")
    pad = lambda a: np.pad(np.asarray(a, np.int32)[order], (0, N_EDGES - e), constant_values=N_NODES - 1)
    return {"atom": atom, "frag": frag, "graph": graph, "send": pad(send), "recv": pad(recv),
            "dist": rng.uniform(0.9, 2.1, N_EDGES).astype(np.float32),
            "emask": (np.arange(N_EDGES) < e).astype(np.float32), "y": y}


if __name__ == "__main__":
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 12000
    rng = np.random.default_rng(5)
    frag_table = jnp.asarray(rng.standard_normal((FRAG_ROWS, FRAG_DIM), np.float32))
    data = [jax.device_put(make_batch(rng)) for _ in range(96)]

    p = init_params(jax.random.key(1))
    zeros = lambda: jax.tree.map(jnp.zeros_like, p)
    carry = (p, zeros(), zeros(), jax.tree.map(jnp.copy, p), jnp.zeros((), jnp.float32))
    for b in data[:3]:
        carry, loss = train_step(carry, frag_table, b)
    jax.block_until_ready(loss)

    tic = time.perf_counter()
    for i in range(steps):
        carry, loss = train_step(carry, frag_table, data[i % len(data)])
        if (i + 1) % 2000 == 0:
            print(i + 1, "huber", round(float(loss), 4), flush=True)
    jax.block_until_ready(carry)
    print(f"done {steps} steps in {time.perf_counter() - tic:.4f} s")
