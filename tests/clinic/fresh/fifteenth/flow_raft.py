"""Small recurrent optical flow (RAFT-style) on synthetic two-layer clips, with equinox and optax.
Every clip keeps its last hidden state and flow; half of its later visits start from there instead of from scratch.
"""
import functools
import itertools
import sys
import tempfile
import time
from collections import namedtuple
from dataclasses import dataclass
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

@dataclass(frozen=True)
class Config:
    steps: int = 1500
    warmup: int = 5
    size: int = 48
    clips: int = 5120
    batch: int = 4
    iters: int = 4
    radius: int = 2
    hidden: int = 24
    peak_lr: float = 6e-4
    eval_every: int = 200
    eval_batch: int = 8
    log_every: int = 20

Clips = namedtuple("Clips", "first second flow")  # (N, H, W) twice and (N, 2, H, W): x then y, in pixels
Memory = namedtuple("Memory", "hidden flow")  # per clip, at 1/4 resolution; flow in cells
State = namedtuple("State", "params opt_state memory step")

def render(rng, n, size):
    """A textured background under an affine motion, with a disc that moves by itself."""
    def uniform(lo, hi, *shape):
        return rng.uniform(lo, hi, (*shape, n, 1, 1)).astype(np.float32)

    def texture(waves, x, y):
        return sum(0.5 * np.sin(fx * x + fy * y + phase) for fx, fy, phase in waves)

    axis = np.arange(size, dtype=np.float32) - np.float32((size - 1) / 2)
    y, x = (g[None] for g in np.meshgrid(axis, axis, indexing="ij"))
    back, disc = (list(zip(uniform(-0.9, 0.9, 5), uniform(-0.9, 0.9, 5), uniform(0, 6.28, 5))) for _ in range(2))
    (a, b, c, d), (sx, sy) = uniform(-0.05, 0.05, 4), uniform(-3, 3, 2)
    (cx, cy), (mx, my), radius = uniform(-12, 12, 2), uniform(-4, 4, 2), uniform(6, 12)
    det = (1 + a) * (1 + d) - b * c
    from_x = ((1 + d) * (x - sx) - b * (y - sy)) / det
    from_y = ((1 + a) * (y - sy) - c * (x - sx)) / det
    before = (x - cx) ** 2 + (y - cy) ** 2 < radius**2
    after = (x - cx - mx) ** 2 + (y - cy - my) ** 2 < radius**2
    first = np.where(before, texture(disc, x, y), texture(back, x, y))
    second = np.where(after, texture(disc, x - mx, y - my), texture(back, from_x, from_y))
    flow = np.where(before, mx, a * x + b * y + sx), np.where(before, my, c * x + d * y + sy)
    return Clips(first, second, np.stack(flow, axis=1))

def make_clips(seed, n, size, chunk=256):
    rng = np.random.default_rng(seed)
    parts = [render(rng, min(chunk, n - lo), size) for lo in range(0, n, chunk)]
    return Clips(*(np.concatenate(field) for field in zip(*parts)))

def jitter(key, clips):
    """Photometric augmentation: a gain for the clip, noise for each frame."""
    gain_key, *keys = jax.random.split(key, 3)
    gain = jax.random.uniform(gain_key, (clips.first.shape[0], 1, 1), minval=0.8, maxval=1.25)
    first, second = (gain * f + 0.02 * jax.random.normal(k, f.shape) for k, f in zip(keys, clips[:2]))
    return clips._replace(first=first, second=second)

def min_eigenvalue(a, b, c):
    """The smaller eigenvalue of [[a, b], [b, c]], for each pixel."""
    return 0.5 * (a + c) - jnp.sqrt(0.25 * (a - c) ** 2 + b * b)

def with_corners(frame):
    """(B, H, W) -> (B, 2, H, W): the frame and its Shi-Tomasi cornerness."""
    def smooth(x):
        return jax.lax.reduce_window(x, 0.0, jax.lax.add, (1, 3, 3), (1, 1, 1), "SAME") / 9.0

    gy, gx = jnp.gradient(frame, axis=(1, 2))
    corner = min_eigenvalue(smooth(gx * gx), smooth(gx * gy), smooth(gy * gy))
    return jnp.stack([frame, jnp.sqrt(jnp.maximum(corner, 0.0) + 1e-6)], axis=1)

def encoder(dim, key):
    k = jax.random.split(key, 4)
    conv, norm, relu = eqx.nn.Conv2d, eqx.nn.GroupNorm, eqx.nn.Lambda(jax.nn.relu)
    return eqx.nn.Sequential([
        conv(2, 12, 5, stride=2, padding=2, key=k[0]), norm(4, 12), relu,
        conv(12, 24, 3, stride=2, padding=1, key=k[1]), norm(4, 24), relu,
        conv(24, 24, 3, padding=1, key=k[2]), relu, conv(24, dim, 1, key=k[3]),
    ])

def correlation_pyramid(left, right):
    c, h, w = left.shape
    fine = jnp.einsum("chw,cyx->hwyx", left, right).reshape(h * w, h, w) / c**0.5
    return [fine, fine.reshape(h * w, h // 2, 2, w // 2, 2).mean(axis=(2, 4))]

def lookup(pyramid, coords, radius):
    """Bilinear windows around coords, one per query and level; separable hat weights instead of gathers."""
    def hat(position, size):
        return jax.nn.relu(1.0 - jnp.abs(position[..., None] - jnp.arange(size, dtype=jnp.float32)))

    offsets = jnp.arange(-radius, radius + 1, dtype=jnp.float32)
    x, y = coords.reshape(2, -1)
    windows = []
    for level, volume in enumerate(pyramid):
        wx = hat(x[:, None] / 2.0**level + offsets, volume.shape[2])
        wy = hat(y[:, None] / 2.0**level + offsets, volume.shape[1])
        rows = (wy[:, :, :, None] * volume[:, None]).sum(axis=2)
        windows.append((rows[:, :, None, :] * wx[:, None]).sum(axis=3))
    return jnp.stack(windows, axis=1).reshape(x.shape[0], -1).T.reshape(-1, *coords.shape[1:])

class FlowNet(eqx.Module):
    features: eqx.Module
    context: eqx.Module
    update: dict[str, eqx.nn.Conv2d]
    radius: int = eqx.field(static=True)

    def __init__(self, cfg, key):
        feature_key, context_key, *keys = jax.random.split(key, 8)
        wide = cfg.hidden + 8 + 20 + 4
        shapes = {
            "corr": (2 * (2 * cfg.radius + 1) ** 2, 20, 1), "flow": (2, 4, 3), "gates": (wide, 2 * cfg.hidden, 3),
            "candidate": (wide, cfg.hidden, 3), "head": (cfg.hidden, 24, 3), "delta": (24, 2, 3),
        }
        self.features = encoder(48, feature_key)
        self.context = encoder(cfg.hidden + 8, context_key)
        self.update = {
            name: eqx.nn.Conv2d(i, o, s, padding=s // 2, key=k) for k, (name, (i, o, s)) in zip(keys, shapes.items())
        }
        self.radius = cfg.radius

    def gru(self, hidden, context, corr, flow):
        conv, relu = self.update, jax.nn.relu
        inputs = jnp.concatenate([context, relu(conv["corr"](corr)), relu(conv["flow"](flow))])
        update, reset = jnp.split(jax.nn.sigmoid(conv["gates"](jnp.concatenate([hidden, inputs]))), 2)
        candidate = jnp.tanh(conv["candidate"](jnp.concatenate([reset * hidden, inputs])))
        hidden = (1 - update) * hidden + update * candidate
        return hidden, conv["delta"](relu(conv["head"](hidden)))

    def __call__(self, first, second, past, warm, iters):
        left, right = jax.vmap(self.features)(jnp.stack([first, second]))
        pyramid = correlation_pyramid(left, right)
        init, context = jnp.split(self.context(first), [past.hidden.shape[0]])
        context = jax.nn.relu(context)
        hidden = jnp.where(warm, past.hidden, jnp.tanh(init))
        flow = jnp.where(warm, past.flow, 0.0)
        h, w = flow.shape[1:]
        cells = jnp.stack(jnp.meshgrid(jnp.arange(w, dtype=jnp.float32), jnp.arange(h, dtype=jnp.float32)))

        def body(carry, _):
            hidden, flow = carry
            flow = jax.lax.stop_gradient(flow)
            hidden, delta = self.gru(hidden, context, lookup(pyramid, cells + flow, self.radius), flow)
            return (hidden, flow + delta), flow + delta

        (hidden, _), flows = jax.lax.scan(body, (hidden, flow), None, length=iters)
        return flows, hidden

def estimate(model, clips, past, warm, iters):
    """Flow after each iteration at full resolution (B, iters, 2, H, W), and what to remember."""
    def run(first, second, past, warm):
        return model(first, second, past, warm, iters)

    flows, hidden = jax.vmap(run)(with_corners(clips.first), with_corners(clips.second), past, warm)
    full = 4.0 * jax.image.resize(flows, (*flows.shape[:3], *clips.first.shape[1:]), "bilinear")
    return full, Memory(hidden, flows[:, -1])

def blank_memory(cfg, n):
    side = cfg.size // 4
    return Memory(jnp.zeros((n, cfg.hidden, side, side)), jnp.zeros((n, 2, side, side)))

def make_steps(cfg, static, optimizer):
    def sequence_loss(params, clips, past, warm):
        flows, latest = estimate(eqx.combine(params, static), clips, past, warm, cfg.iters)
        weights = 0.8 ** jnp.arange(cfg.iters - 1, -1, -1, dtype=jnp.float32)
        return (weights * jnp.abs(flows - clips.flow[:, None]).mean(axis=(0, 2, 3, 4))).sum(), (flows[:, -1], latest)

    @functools.partial(jax.jit, donate_argnums=0)
    def train_step(state, bank):
        seen = state.step * cfg.batch
        start = seen % cfg.clips
        take = lambda whole: jax.lax.dynamic_slice_in_dim(whole, start, cfg.batch)
        put = lambda whole, part: jax.lax.dynamic_update_slice_in_dim(whole, part, start, axis=0)
        clips, past = jax.tree.map(take, (bank, state.memory))
        noise_key, warm_key = jax.random.split(jax.random.fold_in(jax.random.PRNGKey(0), state.step))
        clips = jitter(noise_key, clips)
        warm = jax.random.bernoulli(warm_key, 0.5, (cfg.batch,)) & (seen >= cfg.clips)
        loss_and_grad = jax.value_and_grad(sequence_loss, has_aux=True)
        (loss, (flow, latest)), grads = loss_and_grad(state.params, clips, past, warm)
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        params, memory = eqx.apply_updates(state.params, updates), jax.tree.map(put, state.memory, latest)
        metrics = {"loss": loss, "epe": jnp.linalg.norm(flow - clips.flow, axis=1).mean()}
        return State(params, opt_state, memory, state.step + 1), metrics

    @jax.jit
    def eval_step(params, clips):
        past, warm = blank_memory(cfg, cfg.eval_batch), jnp.zeros(cfg.eval_batch, bool)
        flows, _ = estimate(eqx.combine(params, static), clips, past, warm, 2 * cfg.iters)
        return jnp.linalg.norm(flows[:, -1] - clips.flow, axis=1).mean()

    return train_step, eval_step

def train(cfg, bank, heldout, folder):
    """Yields a record of metrics per step (first one: step 0, evaluation only); training metrics stay on the device."""
    total = cfg.warmup + cfg.steps
    schedule = optax.cosine_onecycle_schedule(total, cfg.peak_lr, pct_start=0.1)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=1e-5))
    params, static = eqx.partition(FlowNet(cfg, jax.random.PRNGKey(0)), eqx.is_inexact_array)
    state = State(params, optimizer.init(params), blank_memory(cfg, cfg.clips), jnp.zeros((), jnp.int32))
    train_step, eval_step = make_steps(cfg, static, optimizer)
    evaluate = lambda params: float(np.mean(jax.device_get([eval_step(params, clips) for clips in heldout])))

    yield {"step": 0, "eval": evaluate(state.params)}
    for step in range(1, total + 1):
        state, metrics = train_step(state, bank)
        record = {"step": step, "train": metrics}
        if step % cfg.eval_every == 0:
            record["eval"] = evaluate(state.params)
        if step % 500 == 0:
            eqx.tree_serialise_leaves(folder / f"step{step:06d}.eqx", (state.params, state.opt_state))
        yield record

def main():
    cfg = Config(steps=int(sys.argv[1])) if len(sys.argv) > 1 else Config()
    bank = jax.device_put(make_clips(0, cfg.clips, cfg.size))
    heldout = [jax.device_put(make_clips(1 + i, cfg.eval_batch, cfg.size)) for i in range(4)]

    with tempfile.TemporaryDirectory() as folder:
        records = train(cfg, bank, heldout, Path(folder))
        for record in itertools.islice(records, 1 + cfg.warmup):
            print(f"warm-up {record['step']}", flush=True)
        jax.block_until_ready(record["train"])
        window, began = [], time.perf_counter()
        for record in records:
            window.append(record["train"])
            if record["step"] % cfg.log_every == 0:
                mean = jax.tree.map(lambda *v: float(np.mean(v)), *jax.device_get(window))
                window.clear()
                print(f"step {record['step']:5d}  loss {mean['loss']:.3f}  epe {mean['epe']:.3f}", flush=True)
            if "eval" in record:
                print(f"step {record['step']:5d}  held-out epe {record['eval']:.3f}", flush=True)
        jax.block_until_ready(record["train"])
        seconds = time.perf_counter() - began
    print(f"done {cfg.steps} steps in {seconds:.3f} s")

if __name__ == "__main__":
    main()
