"""Self-attentive neural Hawkes process on event tapes.

Every event of a padded sequence is embedded (type + temporal encoding), a small causal transformer reads the
history, and its output at event i sets, for each type k, the intensity until event i + 1:

    lambda_k(t) = softplus(cap * tanh(x / cap)),   x = mu + (eta - mu) * exp(-gamma * (t - t_i))

Fitted by maximum likelihood; the compensator (integral of the total intensity) is a Monte-Carlo estimate.
The tapes come from a multivariate Hawkes process with exponential kernels (Ogata thinning).
"""
import os
import sys
import tempfile
import time
from functools import partial

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np

np.set_printoptions(precision=4, suppress=True)

N_TRAIN, N_VALID = 2048, 128
MAX_LEN = 65            # 64 inter-event gaps
N_TYPES = 32
D_MODEL, N_HEADS, N_LAYERS, D_FF = 32, 2, 2, 64
CAP, N_MC = 6.0, 48
BATCH = 32
PEAK_LR, WARMUP_LR = 3e-3, 200
B1, B2, EPS = 0.9, 0.98, 1e-8
WEIGHT_DECAY, CLIP, EMA = 1e-3, 1.0, 0.995
SETTLE, LOG_EVERY, EVAL_EVERY, SAVE_EVERY = 10, 100, 250, 1000

FREQ = np.exp(-np.log(1e3) * np.arange(D_MODEL // 2) / (D_MODEL // 2))

# ---------------------------------------------------------------- tapes
def simulate(rng, n, length):
    """n sequences of `length` events each, all thinned side by side."""
    base = rng.gamma(2.0, 0.01, N_TYPES)
    infl = (rng.random((N_TYPES, N_TYPES)) < 0.12) * rng.gamma(1.5, 0.2, (N_TYPES, N_TYPES))
    infl *= 0.7 / np.abs(np.linalg.eigvals(infl)).max()
    beta = 1.5
    now, drive = np.zeros(n), np.zeros((n, N_TYPES))
    times, kinds = np.zeros((n, length)), np.zeros((n, length), np.int32)
    for i in range(length):
        pending = np.arange(n)
        while pending.size:
            bound = (base + drive[pending]).sum(1)
            wait = rng.exponential(1.0 / bound)
            now[pending] += wait
            drive[pending] *= np.exp(-beta * wait)[:, None]
            cum = (base + drive[pending]).cumsum(1)
            u = rng.random(pending.size) * bound
            hit = u < cum[:, -1]
            who = pending[hit]
            kind = (u[hit, None] > cum[hit]).sum(1)
            times[who, i], kinds[who, i] = now[who], kind
            drive[who] += beta * infl[kind]
            pending = pending[~hit]
    return times, kinds


def make_tape(rng, n):
    times, kinds = simulate(rng, n, MAX_LEN)
    times -= times[:, :1]
    lengths = rng.integers(24, MAX_LEN + 1, n)
    mask = np.arange(MAX_LEN) < lengths[:, None]
    last = times[np.arange(n), lengths - 1]
    times = np.where(mask, times, last[:, None])      # padding: no time passes
    kinds = np.where(mask, kinds, 0).astype(np.int32)
    return {"t": times, "k": kinds, "mask": mask.astype(times.dtype)}


def index_stream(rng):
    while True:
        yield from rng.permutation(N_TRAIN).astype(np.int32).reshape(-1, BATCH)

# ---------------------------------------------------------------- model
def dense_init(key, n_in, n_out, scale=1.0):
    return scale * jax.random.normal(key, (n_in, n_out)) / np.sqrt(n_in).item()


def init_params(key):
    keys = iter(jax.random.split(key, 6 * N_LAYERS + 4))
    layers = []
    for _ in range(N_LAYERS):
        layers.append({
            "ln1_g": jnp.ones(D_MODEL), "ln1_b": jnp.zeros(D_MODEL),
            "wq": dense_init(next(keys), D_MODEL, D_MODEL), "wk": dense_init(next(keys), D_MODEL, D_MODEL),
            "wv": dense_init(next(keys), D_MODEL, D_MODEL), "wo": dense_init(next(keys), D_MODEL, D_MODEL, 0.5),
            "ln2_g": jnp.ones(D_MODEL), "ln2_b": jnp.zeros(D_MODEL),
            "w1": dense_init(next(keys), D_MODEL, D_FF), "b1": jnp.zeros(D_FF),
            "w2": dense_init(next(keys), D_FF, D_MODEL, 0.5), "b2": jnp.zeros(D_MODEL),
        })
    return {
        "embed": 0.5 * jax.random.normal(next(keys), (N_TYPES, D_MODEL)),
        "layers": layers,
        "ln_g": jnp.ones(D_MODEL), "ln_b": jnp.zeros(D_MODEL),
        "w_mu": dense_init(next(keys), D_MODEL, N_TYPES, 0.3), "b_mu": jnp.full(N_TYPES, -3.0),
        "w_eta": dense_init(next(keys), D_MODEL, N_TYPES, 0.3), "b_eta": jnp.full(N_TYPES, -2.5),
        "w_gamma": dense_init(next(keys), D_MODEL, N_TYPES, 0.3), "b_gamma": jnp.zeros(N_TYPES),
    }


def layer_norm(x, gain, bias):
    x = x - x.mean(-1, keepdims=True)
    return gain * x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) + bias


def attend(layer, x, keep):
    b, n, _ = x.shape
    q = (x @ layer["wq"]).reshape(b, n, N_HEADS, -1)
    k = (x @ layer["wk"]).reshape(b, n, N_HEADS, -1)
    v = (x @ layer["wv"]).reshape(b, n, N_HEADS, -1)
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * (D_MODEL // N_HEADS) ** -0.5
    weights = jax.nn.softmax(jnp.where(keep, scores, -1e9), axis=-1)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(b, n, D_MODEL) @ layer["wo"]


def encode(params, t, k, mask):
    """Per-event intensity coefficients mu, eta, gamma, each [batch, length, types]."""
    n = t.shape[1]
    phase = t[..., None] * FREQ
    x = params["embed"][k] + jnp.concatenate([jnp.sin(phase), jnp.cos(phase)], axis=-1)
    keep = np.tri(n, dtype=bool) & (mask > 0)[:, None, None, :]
    for layer in params["layers"]:
        x = x + attend(layer, layer_norm(x, layer["ln1_g"], layer["ln1_b"]), keep)
        h = layer_norm(x, layer["ln2_g"], layer["ln2_b"])
        x = x + jax.nn.gelu(h @ layer["w1"] + layer["b1"]) @ layer["w2"] + layer["b2"]
    x = layer_norm(x, params["ln_g"], params["ln_b"])
    mu = x @ params["w_mu"] + params["b_mu"]
    eta = x @ params["w_eta"] + params["b_eta"]
    gamma = jax.nn.softplus(x @ params["w_gamma"] + params["b_gamma"])
    return mu, eta, gamma


def intensity(coef, tau):
    """coef: three of [b, n, types]; tau: [b, n, s] times since the last event -> [b, n, s, types]."""
    mu, eta, gamma = (c[:, :, None, :] for c in coef)
    x = mu + (eta - mu) * jnp.exp(-gamma * tau[..., None])
    return jax.nn.softplus(CAP * jnp.tanh(x / CAP))     # soft cap: a stray gap cannot blow up the compensator


def likelihood_terms(params, batch, key):
    t, k, mask = batch["t"], batch["k"], batch["mask"]
    gap, k_next, live = t[:, 1:] - t[:, :-1], k[:, 1:], mask[:, 1:]
    coef = encode(params, t[:, :-1], k[:, :-1], mask[:, :-1])
    at_event = intensity(coef, gap[..., None])[:, :, 0]
    log_rate = jnp.log(jnp.take_along_axis(at_event, k_next[..., None], axis=-1)[..., 0] + 1e-8)
    tau = gap[..., None] * jax.random.uniform(key, gap.shape + (N_MC,))
    compensator = gap * intensity(coef, tau).sum((-2, -1)) / N_MC
    return (compensator - log_rate) * live, at_event.argmax(-1) == k_next, live


def nll(params, batch, key):
    terms, _, live = likelihood_terms(params, batch, key)
    return terms.sum() / live.sum()

# ---------------------------------------------------------------- fitting
def init_state(key):
    params = init_params(key)
    return {
        "params": params,
        "ema": jax.tree.map(jnp.copy, params),
        "m": jax.tree.map(jnp.zeros_like, params),
        "v": jax.tree.map(jnp.zeros_like, params),
        "step": jnp.zeros((), jnp.int32),
    }


def adamw(state, grads):
    count = (state["step"] + 1).astype(float)
    lr = PEAK_LR * jnp.minimum(count / WARMUP_LR, jnp.sqrt(WARMUP_LR / count))
    norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(grads)))
    scale = jnp.minimum(1.0, CLIP / (norm + 1e-6))
    grads = jax.tree.map(lambda g: g * scale, grads)
    m = jax.tree.map(lambda a, g: B1 * a + (1 - B1) * g, state["m"], grads)
    v = jax.tree.map(lambda a, g: B2 * a + (1 - B2) * g * g, state["v"], grads)
    c1, c2 = 1 - B1 ** count, 1 - B2 ** count

    def move(p, a, b):
        return p - lr * ((a / c1) / (jnp.sqrt(b / c2) + EPS) + WEIGHT_DECAY * p)

    params = jax.tree.map(move, state["params"], m, v)
    ema = jax.tree.map(lambda e, p: EMA * e + (1 - EMA) * p, state["ema"], params)
    return {"params": params, "ema": ema, "m": m, "v": v, "step": state["step"] + 1}


@partial(jax.jit, donate_argnums=0)
def train_step(state, tape, index, key):
    batch = jax.tree.map(lambda a: a[index], tape)
    loss, grads = jax.value_and_grad(nll)(state["params"], batch, jax.random.fold_in(key, state["step"]))
    return adamw(state, grads), loss


@jax.jit
def eval_step(params, batch, key):
    terms, right, live = likelihood_terms(params, batch, key)
    return jnp.stack([terms.sum(), (right * live).sum(), live.sum()])


def evaluate(params, chunks, key):
    total, right, events = np.sum(jax.device_get([eval_step(params, c, key) for c in chunks]), axis=0)
    return total / events, right / events


def save(path, params):
    leaves = jax.device_get(jax.tree.leaves(params))
    np.savez(path, **{f"leaf{i:03d}": x for i, x in enumerate(leaves)})


if __name__ == "__main__":
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
    rng = np.random.default_rng(7)
    raw = make_tape(rng, N_TRAIN + N_VALID)
    print(f"{int(raw['mask'].sum())} events, {N_TYPES} types, median gap {np.median(np.diff(raw['t'][:, :24])):.3f}")
    tape = {name: jnp.asarray(a[:N_TRAIN]) for name, a in raw.items()}
    chunks = [{name: jnp.asarray(a[i:i + 64]) for name, a in raw.items()}
              for i in range(N_TRAIN, N_TRAIN + N_VALID, 64)]

    init_key, mc_key, eval_key = jax.random.split(jax.random.key(0), 3)
    state = init_state(init_key)
    print(f"{sum(x.size for x in jax.tree.leaves(state['params']))} parameters")
    batches = index_stream(rng)
    ckpt_dir = tempfile.mkdtemp(prefix="hawkes_tape_")

    for _ in range(SETTLE):
        state, loss = train_step(state, tape, next(batches), mc_key)
    evaluate(state["ema"], chunks, eval_key)
    jax.block_until_ready(state)

    losses = []
    start = time.perf_counter()
    for step in range(1, steps + 1):
        state, loss = train_step(state, tape, next(batches), mc_key)
        losses.append(loss)
        if step % LOG_EVERY == 0:
            recent = np.mean(jax.device_get(losses))
            losses.clear()
            print(f"step {step:5d}  nll/event {recent:.4f}  {step / (time.perf_counter() - start):.1f} steps/s", flush=True)
        if step % EVAL_EVERY == 0:
            held_out, accuracy = evaluate(state["ema"], chunks, eval_key)
            print(f"step {step:5d}  held-out nll/event {held_out:.4f}  next-type accuracy {accuracy:.3f}", flush=True)
        if step % SAVE_EVERY == 0:
            save(os.path.join(ckpt_dir, f"ema_{step:06d}.npz"), state["ema"])
    jax.block_until_ready((state, loss))
    seconds = time.perf_counter() - start
    print(f"done {steps} steps in {seconds:.3f} s")
