#!/usr/bin/env python
"""Lift 2-D key points to root-relative 3-D poses with a temporal convolution network.

A window of 27 frames of 17 key points goes in, the 3-D pose of the centre frame comes out. Half of each step's clips
have motion capture; the other half is labelled on the fly by the exponentially averaged weights (mean teacher).
"""
import argparse
import queue
import tempfile
import threading
import time
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import serialization
from flax.training import train_state

# hip, right leg (3), left leg (3), spine, thorax, neck, head, left arm (3), right arm (3)
PARENTS = np.array([-1, 0, 1, 2, 0, 4, 5, 0, 7, 8, 9, 8, 11, 12, 8, 14, 15])
LEFT, RIGHT = np.array([4, 5, 6, 11, 12, 13]), np.array([1, 2, 3, 14, 15, 16])
FLIP = np.arange(17)
FLIP[LEFT], FLIP[RIGHT] = RIGHT, LEFT
REST = np.array([[0, 0, 0], [-.13, 0, 0], [0, .45, 0], [0, .44, 0], [.13, 0, 0], [0, .45, 0], [0, .44, 0],
                 [0, -.23, 0], [0, -.25, 0], [0, -.12, 0], [0, -.11, 0], [.15, 0, 0], [.02, .28, 0], [0, .25, 0],
                 [-.15, 0, 0], [-.02, .28, 0], [0, .25, 0]])
WINDOW = 27

def synth_sequence(rng, frames):
    """One subject moving in front of one camera: (frames, 17, 2) key points and (frames, 17, 3) poses in metres."""
    t = np.arange(frames)[:, None, None] / 50.0
    dirs = np.repeat(REST[None], frames, axis=0)
    for _ in range(3):
        amp, freq = rng.uniform(0, .12, (1, 17, 3)), rng.uniform(.2, 1.5, (1, 17, 3))
        dirs += amp * np.sin(2 * np.pi * (freq * t + rng.uniform(0, 1, (1, 17, 3))))
    length = np.linalg.norm(REST, axis=-1, keepdims=True) * rng.uniform(.9, 1.1)
    bones = dirs / (np.linalg.norm(dirs, axis=-1, keepdims=True) + 1e-6) * length
    pose = np.zeros_like(bones)
    for j in range(1, 17):
        pose[:, j] = pose[:, PARENTS[j]] + bones[:, j]
    yaw = rng.uniform(0, 2 * np.pi) + rng.uniform(-.5, .5) * t[..., 0]
    x, z = pose[..., 0].copy(), pose[..., 2].copy()
    pose[..., 0], pose[..., 2] = np.cos(yaw) * x + np.sin(yaw) * z, -np.sin(yaw) * x + np.cos(yaw) * z
    cam = pose + np.array([rng.uniform(-.5, .5), rng.uniform(-.3, .3), rng.uniform(4.0, 6.0)])
    return (2.3 * cam[..., :2] / cam[..., 2:]).astype(np.float32), pose.astype(np.float32)

class PoseClipDataset:
    """Windows of 2-D key points with the 3-D pose of the centre frame."""

    def __init__(self, sequences, frames, augment=False, seed=0):
        self.rng = np.random.default_rng(seed)
        kp2d, pose3d = zip(*(synth_sequence(self.rng, frames) for _ in range(sequences)))
        self.kp2d, self.pose3d = np.stack(kp2d), np.stack(pose3d)
        self.starts = frames - WINDOW + 1
        self.augment = augment

    def __len__(self):
        return len(self.kp2d) * self.starts

    def __getitems__(self, indices):
        seq, start = np.divmod(indices, self.starts)
        kp2d = self.kp2d[seq[:, None], start[:, None] + np.arange(WINDOW)]
        pose3d = self.pose3d[seq, start + WINDOW // 2]
        if self.augment:
            self._augment(kp2d, pose3d)
        return {"kp2d": kp2d.reshape(len(indices), WINDOW, -1), "pose3d": pose3d}

    def _augment(self, kp2d, pose3d):
        """Mirror, zoom, detector jitter and missed joints, in place on the gathered copy."""
        n = len(kp2d)
        flip = self.rng.random(n) < .5
        kp2d[flip] = kp2d[flip][:, :, FLIP] * np.array([-1, 1], np.float32)
        pose3d[flip] = pose3d[flip][:, FLIP] * np.array([-1, 1, 1], np.float32)
        kp2d *= self.rng.uniform(.95, 1.05, (n, 1, 1, 1)).astype(np.float32)
        kp2d += np.float32(.01) * self.rng.standard_normal(kp2d.shape, dtype=np.float32)
        kp2d *= self.rng.random(kp2d.shape[:3] + (1,), dtype=np.float32) > .03

class DataLoader:
    """Endless shuffled batches, prepared ahead by one background thread."""

    def __init__(self, dataset, batch_size, prefetch=4, seed=0):
        self.dataset, self.batch_size = dataset, batch_size
        self.rng = np.random.default_rng(seed)
        self._queue = queue.Queue(maxsize=prefetch)
        threading.Thread(target=self._work, daemon=True, name="loader").start()

    def _batches(self):
        while True:
            order = self.rng.permutation(len(self.dataset))
            for i in range(0, len(order) - self.batch_size + 1, self.batch_size):
                yield self.dataset.__getitems__(order[i:i + self.batch_size])

    def _work(self):
        for batch in self._batches():
            self._queue.put(batch)

    def __next__(self):
        return self._queue.get()

class FoldConv(nn.Module):
    """Temporal convolution with kernel = stride = 3: three frames fold into the channels, then one matmul."""
    features: int

    @nn.compact
    def __call__(self, x):
        b, t, c = x.shape
        return nn.Dense(self.features)(x.reshape(b, t // 3, 3 * c))

class LiftNet(nn.Module):
    joints: int = 17
    embed_dim: int = 64
    width: int = 256
    dropout: float = 0.1

    @nn.compact
    def __call__(self, kp2d, train=False):
        x = nn.relu(nn.Dense(self.embed_dim, name="embed")(kp2d))
        x = nn.relu(nn.LayerNorm()(FoldConv(self.width, name="expand")(x)))
        while x.shape[1] > 1:
            h = nn.relu(nn.LayerNorm()(FoldConv(self.width)(x)))
            h = nn.relu(nn.LayerNorm()(nn.Dense(self.width)(h)))
            x = x[:, 1::3] + h
        x = nn.Dropout(self.dropout, deterministic=not train)(x[:, 0])
        return nn.Dense(3 * self.joints, name="head")(x).reshape(-1, self.joints, 3)

class TrainState(train_state.TrainState):
    ema_params: dict
    key: jax.Array

class Teacher:
    """Pseudo-labels for clips without motion capture."""

    def __init__(self, model):
        self._predict = jax.jit(lambda params, kp2d: model.apply({"params": params}, kp2d))

    def label(self, params, kp2d):
        return self._predict(params, kp2d)

def joint_error(pred, target):
    return jnp.sqrt(jnp.sum((pred - target) ** 2, axis=-1) + 1e-10)

def pa_error(pred, target, rounds=2):
    """Joint error per pose after a similarity alignment that trusts badly fitting joints less in its second round."""
    w = jnp.ones(pred.shape[:2], pred.dtype)
    for _ in range(rounds):
        w = w / w.sum(1, keepdims=True)
        p = pred - jnp.einsum("bj,bjd->bd", w, pred)[:, None]
        t = target - jnp.einsum("bj,bjd->bd", w, target)[:, None]
        h = jnp.einsum("bji,bjk->bik", w[..., None] * p, t)
        u, s, vt = jnp.linalg.svd(h, full_matrices=False)
        det = jnp.sum(jnp.cross(h[:, 0], h[:, 1]) * h[:, 2], axis=-1)
        sign = jnp.ones_like(s).at[:, 2].set(jnp.where(det < 0, -1.0, 1.0))
        scale = jnp.sum(s * sign, axis=-1) / jnp.sum(w[..., None] * p * p, axis=(1, 2))
        err = joint_error(scale[:, None, None] * (p @ ((u * sign[:, None]) @ vt)), t)
        w = 1.0 / (err + .05)
    return err.mean(axis=1)

def bone_lengths(pose):
    return joint_error(pose[:, 1:], pose[:, PARENTS[1:]])

@partial(jax.jit, donate_argnums=0)
def train_step(state, labelled, unlabelled, pseudo):
    kp2d = jnp.concatenate([labelled["kp2d"], unlabelled["kp2d"]])
    target = jnp.concatenate([labelled["pose3d"], pseudo])
    n = labelled["kp2d"].shape[0]
    key = jax.random.fold_in(state.key, state.step)

    def loss_fn(params):
        pred = state.apply_fn({"params": params}, kp2d, train=True, rngs={"dropout": key})
        err = joint_error(pred, target).mean(axis=1)
        pa = pa_error(jax.lax.stop_gradient(pred), target)
        hard = jnp.clip(pa / (pa.mean() + 1e-6), .5, 2.0)  # poses that are wrong beyond scale and view count more
        bones = bone_lengths(pred)
        symmetry = jnp.abs(bones[:, LEFT - 1] - bones[:, RIGHT - 1]).mean()
        trust = .3 * jnp.minimum(state.step / 500, 1.0)
        loss = (hard * err)[:n].mean() + trust * (hard * err)[n:].mean() + .1 * symmetry
        return loss, {"loss": loss, "mpjpe": err[:n].mean(), "pa_mpjpe": pa[:n].mean()}

    grads, metrics = jax.grad(loss_fn, has_aux=True)(state.params)
    state = state.apply_gradients(grads=grads)
    decay = jnp.minimum(.999, (1.0 + state.step) / (10.0 + state.step))
    return state.replace(ema_params=optax.incremental_update(state.params, state.ema_params, 1.0 - decay)), metrics

@partial(jax.jit, static_argnums=0)
def eval_step(model, params, batch):
    pred = model.apply({"params": params}, batch["kp2d"])
    return joint_error(pred, batch["pose3d"]).mean(), pa_error(pred, batch["pose3d"]).mean()

def main():
    ap = argparse.ArgumentParser(description="2-D to 3-D pose lifting")
    ap.add_argument("steps", nargs="?", type=int, default=1800)
    ap.add_argument("--batch-size", type=int, default=128, help="labelled clips a step; as many unlabelled ones come on top")
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--weight-decay", type=float, default=1e-4)
    ap.add_argument("--log-every", type=int, default=50)
    ap.add_argument("--eval-every", type=int, default=300)
    ap.add_argument("--warmup", type=int, default=5, help="steps before the clock starts")
    args = ap.parse_args()
    out = tempfile.mkdtemp(prefix="pose_lift_")

    mocap = DataLoader(PoseClipDataset(32, 1200, augment=True, seed=1), args.batch_size, seed=11)
    wild = DataLoader(PoseClipDataset(32, 1200, augment=True, seed=2), args.batch_size, seed=12)
    held_out = PoseClipDataset(8, 600, seed=3)
    val = jax.device_put(held_out.__getitems__(np.arange(0, len(held_out), 6)))

    model = LiftNet()
    params = model.init(jax.random.key(0), jnp.zeros((1, WINDOW, 34)))["params"]
    total = args.steps + args.warmup
    schedule = optax.warmup_cosine_decay_schedule(0.0, args.lr, max(1, min(200, total // 10)), total, args.lr * .01)
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=args.weight_decay))
    state = TrainState.create(apply_fn=model.apply, params=params, tx=tx, key=jax.random.key(1),
                              ema_params=jax.tree.map(jnp.copy, params))
    state = state.replace(step=jnp.zeros((), jnp.int32))
    teacher = Teacher(model)
    print(f"{sum(p.size for p in jax.tree.leaves(params)) / 1e3:.0f}k parameters, {len(mocap.dataset)} clips, out: {out}")

    def step_once(state):
        labelled, unlabelled = next(mocap), next(wild)
        pseudo = teacher.label(state.ema_params, unlabelled["kp2d"])
        return train_step(state, labelled, unlabelled, pseudo)

    for _ in range(args.warmup):
        state, metrics = step_once(state)
    jax.block_until_ready((state.params, metrics, eval_step(model, state.ema_params, val)))

    begin = time.perf_counter()
    for step in range(1, args.steps + 1):
        state, metrics = step_once(state)
        if step % args.log_every == 0:
            m = jax.device_get(metrics)
            rate = 2 * args.batch_size * step / (time.perf_counter() - begin)
            print(f"step {step:5d}  loss {m['loss']:.4f}  mpjpe {1e3 * m['mpjpe']:6.1f} mm  "
                  f"pa {1e3 * m['pa_mpjpe']:6.1f} mm  {rate:.0f} clips/s", flush=True)
        if step % args.eval_every == 0:
            mpjpe, pa = jax.device_get(eval_step(model, state.ema_params, val))
            print(f"  val @ {step}: mpjpe {1e3 * mpjpe:.1f} mm, pa-mpjpe {1e3 * pa:.1f} mm", flush=True)
            with open(f"{out}/last.msgpack", "wb") as f:
                f.write(serialization.to_bytes({"step": step, "ema": state.ema_params}))
    jax.block_until_ready((state.params, metrics))
    seconds = time.perf_counter() - begin

    mpjpe, pa = jax.device_get(eval_step(model, state.ema_params, val))
    print(f"final: mpjpe {1e3 * mpjpe:.1f} mm, pa-mpjpe {1e3 * pa:.1f} mm")
    print(f"done {args.steps} steps in {seconds:.3f} s")

if __name__ == "__main__":
    main()
