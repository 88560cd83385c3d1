"""Change detection on pairs of (simulated) satellite tiles with a siamese U-Net.

Simulated scenes are delivered as compressed archives and cut into overlapping
tiles. Unlabelled pixels (mask 255) learn by temporal ensembling: a bank on the
device keeps each tile's running mean prediction.  Usage: sat_change.py [STEPS]
"""
import dataclasses, pathlib, queue, sys, tempfile, threading, time
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import serialization, struct
from PIL import Image, ImageDraw

@dataclasses.dataclass(frozen=True)
class Config:
    scenes: int = 3
    scene_px: int = 768; tile: int = 32
    stride: int = 6
    bands: int = 4
    batch: int = 32
    widths: tuple = (16, 24, 32)
    dtype: str = "float32"
    lr: float = 2e-3
    bank_momentum: float = 0.6
    consistency: float = 0.5
    warmup: int = 8
    seed: int = 7

    @property
    def per_side(self):
        return (self.scene_px - self.tile) // self.stride + 1

    @property
    def n_tiles(self):
        return self.scenes * self.per_side ** 2

def fractal(rng, px, octaves=(4, 16, 64, 256)):
    out = np.zeros((px, px), np.float32)
    for k, n in enumerate(octaves):
        small = Image.fromarray(rng.standard_normal((n, n)).astype(np.float32))
        out += np.asarray(small.resize((px, px), Image.BICUBIC)) / 2 ** k
    return out

def simulate_scene(cfg, seed):
    rng, px = np.random.default_rng(seed), cfg.scene_px
    relief = fractal(rng, px)
    spectrum = rng.uniform(0.1, 0.5, (3, cfg.bands)).astype(np.float32)
    before = spectrum[np.digitize(relief, [-0.5, 0.6])] * (1 + 0.1 * relief[..., None])
    canvas = Image.new("L", (px, px))
    pen = ImageDraw.Draw(canvas)
    for _ in range(px // 3):
        x, y = rng.integers(0, px, 2).tolist()
        w, h = rng.integers(4, 40, 2).tolist()
        (pen.rectangle if rng.random() < 0.6 else pen.ellipse)([x, y, x + w, y + h], fill=1)
    mask = np.array(canvas)
    built = rng.uniform(0.3, 0.7, cfg.bands).astype(np.float32)
    season = rng.uniform(0.85, 1.15, cfg.bands).astype(np.float32)
    after = np.where(mask[..., None] == 1, built, before * season)
    mask[fractal(rng, px, (8, 32)) > 1.2] = 255          # nobody labelled these

    def digital_numbers(x):
        noise = rng.standard_normal(x.shape, dtype=np.float32)
        return (np.clip(x + 0.02 * noise, 0, 2) * 10_000).astype(np.uint16)

    return dict(before=digital_numbers(before), after=digital_numbers(after), mask=mask)

def write_archive(cfg, folder):
    paths = [pathlib.Path(folder) / f"scene_{s:02d}.npz" for s in range(cfg.scenes)]
    for s, path in enumerate(paths):
        np.savez_compressed(path, **simulate_scene(cfg, cfg.seed + s))
    return paths

class TileSet:
    def __init__(self, cfg, paths):
        self.cfg = cfg
        self.scenes = [dict(np.load(p)) for p in paths]
    def fetch(self, ids):
        c, t = self.cfg, self.cfg.tile
        a = np.empty((len(ids), t, t, c.bands), np.uint16)
        b, m = np.empty_like(a), np.empty((len(ids), t, t), np.uint8)
        scene, cell = np.divmod(ids, c.per_side ** 2)
        for s in np.unique(scene):
            before, after, mask = (self.scenes[s][k] for k in ("before", "after", "mask"))
            for i in np.flatnonzero(scene == s):
                y, x = (int(v) * c.stride for v in divmod(cell[i], c.per_side))
                win = np.s_[y:y + t, x:x + t]
                a[i], b[i], m[i] = before[win], after[win], mask[win]
        return dict(ids=ids.astype(np.int32), before=self.scale(a), after=self.scale(b), mask=m)
    def scale(self, dn): return (dn.astype(self.cfg.dtype) - 3000) / 1500

class BatchThread(threading.Thread):
    def __init__(self, cfg, tiles, ids, depth=4):
        super().__init__(daemon=True)
        self.cfg, self.tiles, self.ids = cfg, tiles, ids
        self.out, self.halt = queue.Queue(depth), threading.Event()
    def run(self):
        rng = np.random.default_rng(self.cfg.seed)
        while not self.halt.is_set():
            batch = self.tiles.fetch(rng.choice(self.ids, self.cfg.batch))
            # radiometric only, so that the bank stays aligned with its tile
            gain = rng.uniform(0.9, 1.1, (2, self.cfg.batch, 1, 1, self.cfg.bands))
            batch["before"] *= gain[0].astype(self.cfg.dtype)
            batch["after"] *= gain[1].astype(self.cfg.dtype)
            self.out.put(jax.device_put(batch))
    def stop(self):
        self.halt.set()
        while self.is_alive():
            if not self.out.empty(): self.out.get()
            self.join(0.05)

class Block(nn.Module):
    width: int
    dtype: str
    @nn.compact
    def __call__(self, x):
        kind = dict(dtype=self.dtype, param_dtype=self.dtype)
        x = nn.relu(nn.Conv(self.width, (3, 3), **kind)(x))
        return nn.relu(nn.GroupNorm(4, **kind)(nn.Conv(self.width, (3, 3), **kind)(x)))

class SiameseUNet(nn.Module):
    widths: tuple
    dtype: str
    @nn.compact
    def __call__(self, before, after):
        kind = dict(dtype=self.dtype, param_dtype=self.dtype)
        x, skips = jnp.concatenate([before, after]), []     # one encoder for both dates
        x = nn.Conv(self.widths[0], (2, 2), (2, 2), **kind)(x)
        for w in self.widths:
            x = nn.avg_pool(x, (2, 2), (2, 2)) if skips else x
            x = Block(w, self.dtype)(x)
            skips.append(jnp.abs(jnp.subtract(*jnp.split(x, 2))))
        y = skips.pop()
        for w in reversed(self.widths[:-1]):
            y = y.repeat(2, axis=1).repeat(2, axis=2)
            y = Block(w, self.dtype)(jnp.concatenate([y, skips.pop()], axis=-1))
        y = nn.Dense(4, **kind)(y).reshape(*y.shape[:3], 2, 2).swapaxes(2, 3)
        return y.reshape(before.shape[:3])                  # 2x2 pixels from each cell

@struct.dataclass
class State:
    params: dict
    opt: optax.OptState
    bank: jax.Array       # (n_tiles, tile, tile) running predictions; -1: never seen
    step: jax.Array

class Hook:
    def every(self, trainer, n): return trainer.step % n == 0
    def begin(self, trainer): pass
    def after_step(self, trainer, metrics): pass
    def end(self, trainer): pass

class LogHook(Hook):
    def __init__(self, n=100):
        self.n, self.pending = n, []
    def after_step(self, trainer, metrics):
        self.pending.append(metrics)
        if self.every(trainer, self.n):
            rows = jax.device_get(self.pending)
            text = "  ".join(f"{k} {np.mean([r[k] for r in rows]):.4f}" for k in rows[0])
            print(f"[{trainer.step:5d}] {text}", flush=True)
            self.pending.clear()

class EvalHook(Hook):
    def __init__(self, batch, n=250):
        self.batch, self.n = batch, n
    def begin(self, trainer): self.report(trainer)
    def after_step(self, trainer, metrics):
        if self.every(trainer, self.n): self.report(trainer)
    def report(self, trainer):
        print(f"[{trainer.step:5d}] IoU {trainer.iou(trainer.state.params, self.batch):.3f}")

class CheckpointHook(Hook):
    def __init__(self, folder): self.path = pathlib.Path(folder) / "unet.msgpack"
    def end(self, trainer): self.path.write_bytes(serialization.to_bytes(trainer.state.params))

class Trainer:
    def __init__(self, cfg, hooks, total):
        self.cfg, self.hooks, self.step = cfg, hooks, 0
        self.net = SiameseUNet(cfg.widths, cfg.dtype)
        self.tx = optax.chain(optax.clip_by_global_norm(1.0),
                              optax.adamw(optax.cosine_decay_schedule(cfg.lr, total)))
        blank = jnp.zeros((1, cfg.tile, cfg.tile, cfg.bands), cfg.dtype)
        params = jax.jit(self.net.init)(jax.random.key(cfg.seed), blank, blank)
        bank = jnp.full((cfg.n_tiles, cfg.tile, cfg.tile), -1, jnp.float32)
        self.state = State(params, self.tx.init(params), bank, jnp.zeros((), jnp.int32))
    def loss(self, params, batch, remembered):
        logits = self.net.apply(params, batch["before"], batch["after"])
        prob = nn.sigmoid(logits)
        known = batch["mask"] != 255
        bce = optax.sigmoid_binary_cross_entropy(logits, batch["mask"] == 1)
        sup = jnp.sum(bce * known) / jnp.maximum(known.sum(), 1)
        drift = jnp.mean(jnp.where(remembered >= 0, prob - remembered, 0) ** 2)
        return sup + self.cfg.consistency * drift, (prob, {"bce": sup, "drift": drift})
    @partial(jax.jit, static_argnums=0, donate_argnums=1)
    def update(self, state, batch):
        old = state.bank[batch["ids"]]
        grads, (prob, metrics) = jax.grad(self.loss, has_aux=True)(state.params, batch, old)
        moves, opt = self.tx.update(grads, state.opt, state.params)
        m = self.cfg.bank_momentum
        new = jnp.where(old < 0, prob, m * old + (1 - m) * prob).astype(state.bank.dtype)
        return State(optax.apply_updates(state.params, moves), opt,
                     state.bank.at[batch["ids"]].set(new), state.step + 1), metrics
    @partial(jax.jit, static_argnums=0)
    def iou(self, params, batch):
        guess = self.net.apply(params, batch["before"], batch["after"]) > 0
        truth, known = batch["mask"] == 1, batch["mask"] != 255
        return (guess & truth).sum() / jnp.maximum(((guess & known) | truth).sum(), 1)
    def advance(self, batches, n):
        for self.step in range(self.step + 1, self.step + n + 1):
            self.state, metrics = self.update(self.state, batches.get())
            [hook.after_step(self, metrics) for hook in self.hooks]
        jax.block_until_ready(self.state)
    def fit(self, batches, steps):
        [hook.begin(self) for hook in self.hooks]
        self.advance(batches, self.cfg.warmup)
        start = time.perf_counter()
        self.advance(batches, steps)
        seconds = time.perf_counter() - start
        [hook.end(self) for hook in self.hooks]
        return seconds

def main(steps):
    cfg = Config()
    with tempfile.TemporaryDirectory(prefix="sat_change_") as folder:
        tiles = TileSet(cfg, write_archive(cfg, folder))
        shuffled = np.random.default_rng(cfg.seed).permutation(cfg.n_tiles)
        held_out, train_ids = shuffled[:128], shuffled[128:]
        feeder = BatchThread(cfg, tiles, train_ids)
        feeder.start()
        hooks = [LogHook(), EvalHook(jax.device_put(tiles.fetch(held_out))), CheckpointHook(folder)]
        seconds = Trainer(cfg, hooks, cfg.warmup + steps).fit(feeder.out, steps)
        feeder.stop()
    print(f"done {steps} steps in {seconds:.3f} s")

if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1200)
