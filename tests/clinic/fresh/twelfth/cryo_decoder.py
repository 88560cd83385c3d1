"""Heterogeneous single-particle reconstruction with a coordinate decoder.

A small network maps (3-D spatial frequency, per-particle latent) to the Hartley
transform of the volume.  By the central slice theorem every noisy particle image
is a plane of that transform, seen through its CTF, so volumes come out of 2-D
data by regression.  Poses from the consensus refinement are a few degrees off;
each particle keeps a table of log-likelihoods over a grid of local rotations,
and the pose of a step is drawn from it (stochastic EM).
"""
import sys
import time
from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float


@dataclass(frozen=True)
class Config:
    box: int = 32               # pixels
    n_particles: int = 16384
    n_atoms: int = 24
    blob: float = 0.025         # atom size, in boxes
    spread: float = 0.12        # size of the molecule, in boxes
    noise: float = 1.0
    local_poses: int = 1024
    local_sigma: float = 0.06   # rad
    z_dim: int = 8
    n_freqs: int = 32
    width: int = 64
    depth: int = 2
    batch: int = 64             # particles a step
    pixels: int = 32            # Fourier pixels a particle and step
    lr: float = 2e-3
    z_lr: float = 0.03
    z_prior: float = 1e-3
    average: float = 0.998
    report_every: int = 100
    seed: int = 7


class Fixed(NamedTuple):
    """What stays on the device for the whole run."""
    images: Array      # (n, m) masked Hartley images
    consensus: Array   # (n, 3, 3)
    defocus: Array     # (n,)
    local: Array       # (k, 3, 3)
    coords: Array      # (m, 3) frequencies of the masked pixels
    freqs: Array       # (3, f) random Fourier features


class State(NamedTuple):
    decoder: eqx.Module
    averaged: eqx.Module
    opt_state: tuple
    z: Array           # (n, z_dim)
    z_sq: Array        # (n, z_dim) Adagrad accumulators
    logp: Array        # (n, k) pose table
    loss_avg: Array
    key: Array


def uniform_rotations(rng, n):
    q = rng.standard_normal((n, 4))
    w, x, y, z = (q / np.linalg.norm(q, axis=1, keepdims=True)).T
    rows = [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w),
            2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w),
            2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)]
    return np.stack(rows, -1).reshape(n, 3, 3)


def rotvec_to_matrix(rotvec):
    angle = np.linalg.norm(rotvec, axis=-1)[:, None, None] + 1e-12
    x, y, z = (rotvec / angle[:, :, 0]).T
    o = np.zeros_like(x)
    skew = np.stack([o, -z, y, z, o, -x, -y, x, o], -1).reshape(-1, 3, 3)
    return np.eye(3) + np.sin(angle) * skew + (1 - np.cos(angle)) * (skew @ skew)


def ctf(defocus, r2, xp=jnp):
    return xp.cos(defocus[:, None] * 40.0 * r2[None, :])


def simulate(cfg, rng):
    half = cfg.box // 2
    grid = np.arange(cfg.box) - half
    yy, xx = np.meshgrid(grid, grid, indexing="ij")
    mask = xx**2 + yy**2 <= (half - 1) ** 2
    coords = np.stack([xx, yy, 0 * xx], -1)[mask].astype(np.float32) / cfg.box
    axis = (grid / cfg.box).astype(np.float32)

    atoms = np.clip(rng.normal(scale=cfg.spread, size=(cfg.n_atoms, 3)), -0.3, 0.3)
    hinge = 0.06 * rng.standard_normal((1, 3)) * (atoms[:, :1] > 0)
    conformation = rng.uniform(-1, 1, cfg.n_particles)
    consensus = uniform_rotations(rng, cfg.n_particles)
    wobble = rng.normal(scale=cfg.local_sigma, size=(cfg.n_particles, 3))
    true_pose = rotvec_to_matrix(wobble) @ consensus
    defocus = rng.uniform(0.8, 1.2, cfg.n_particles).astype(np.float32)

    images = np.empty((cfg.n_particles, len(coords)), np.float32)
    for lo in range(0, cfg.n_particles, 2048):
        part = slice(lo, lo + 2048)
        pos = atoms + conformation[part, None, None] * hinge
        xy = (pos @ true_pose[part].transpose(0, 2, 1)).astype(np.float32)
        gx = np.exp(-0.5 * ((axis - xy[..., 0:1]) / cfg.blob) ** 2)
        gy = np.exp(-0.5 * ((axis - xy[..., 1:2]) / cfg.blob) ** 2)
        view = np.matmul(gy.transpose(0, 2, 1), gx)
        ft = np.fft.fftshift(np.fft.fft2(np.fft.ifftshift(view, axes=(1, 2))), axes=(1, 2))
        images[part] = (ft.real - ft.imag)[:, mask]
    images /= images.std()
    images *= ctf(defocus, np.sum(coords**2, -1), np)
    images += cfg.noise * rng.standard_normal(images.shape, dtype=np.float32)

    local = rng.normal(scale=cfg.local_sigma, size=(cfg.local_poses, 3))
    local[0] = 0.0
    freqs = rng.normal(scale=2 * np.pi * cfg.box * cfg.spread, size=(3, cfg.n_freqs))
    fixed = Fixed(*(jnp.asarray(a, jnp.float32) for a in (
        images, consensus, defocus, rotvec_to_matrix(local), coords, freqs)))
    return fixed, conformation


class Dense(eqx.Module):
    weight: Float[Array, "n_in n_out"]
    bias: Float[Array, "n_out"]

    def __init__(self, n_in, n_out, key):
        self.weight = jax.random.normal(key, (n_in, n_out)) * n_in**-0.5
        self.bias = jnp.zeros((n_out,))

    def __call__(self, x):
        return x @ self.weight + self.bias


class Decoder(eqx.Module):
    lift: Dense
    latent: Float[Array, "z width"]
    blocks: list
    head: Dense

    def __init__(self, cfg, key):
        k_lift, k_latent, k_head, *k_blocks = jax.random.split(key, 3 + cfg.depth)
        self.lift = Dense(2 * cfg.n_freqs, cfg.width, k_lift)
        self.latent = jax.random.normal(k_latent, (cfg.z_dim, cfg.width)) * cfg.z_dim**-0.5
        self.blocks = [Dense(cfg.width, cfg.width, k) for k in k_blocks]
        self.head = Dense(cfg.width, 1, k_head)

    def __call__(self, points, z, freqs):
        """points (b, p, 3), z (b, z_dim) -> Hartley values (b, p)."""
        phase = points @ freqs
        feats = jnp.concatenate([jnp.sin(phase), jnp.cos(phase)], -1)
        h = jax.nn.silu(self.lift(feats) + (z @ self.latent)[:, None, :])
        for block in self.blocks:
            h = h + jax.nn.silu(block(h))
        return self.head(h)[..., 0]


def objective(params, points, contrast, target, freqs, cfg):
    decoder, z = params
    pred = contrast * decoder(points, z, freqs)
    err = jnp.mean((pred - target) ** 2, axis=1)
    return jnp.mean(err) + cfg.z_prior * jnp.mean(z**2), err


def make_optimiser(cfg, n_steps):
    schedule = optax.warmup_cosine_decay_schedule(
        0.0, cfg.lr, max(1, n_steps // 20), n_steps + 1, 0.05 * cfg.lr)
    return optax.chain(optax.clip_by_global_norm(1.0),
                       optax.adamw(schedule, weight_decay=1e-4))


def init_state(cfg, opt):
    k_net, k_z, key = jax.random.split(jax.random.PRNGKey(cfg.seed), 3)
    decoder = Decoder(cfg, k_net)
    return State(
        decoder=decoder,
        averaged=jax.tree.map(jnp.copy, decoder),
        opt_state=opt.init(decoder),
        z=0.1 * jax.random.normal(k_z, (cfg.n_particles, cfg.z_dim)),
        z_sq=jnp.zeros((cfg.n_particles, cfg.z_dim)),
        logp=jnp.zeros((cfg.n_particles, cfg.local_poses)),
        loss_avg=jnp.full((), 2.0, jnp.float32),
        key=key,
    )


def m_step(state, idx, grads, opt, cfg):
    """One optimiser step of the decoder, its running average and the latents."""
    g_decoder, g_z = grads
    updates, opt_state = opt.update(g_decoder, state.opt_state, state.decoder)
    decoder = optax.apply_updates(state.decoder, updates)
    averaged = jax.tree.map(lambda a, p: cfg.average * a + (1 - cfg.average) * p,
                            state.averaged, decoder)
    z_sq = state.z_sq.at[idx].add(g_z**2)
    z = state.z.at[idx].add(-cfg.z_lr * g_z * jax.lax.rsqrt(z_sq[idx] + 1e-10))
    return state._replace(decoder=decoder, averaged=averaged, opt_state=opt_state,
                          z=z, z_sq=z_sq)


@eqx.filter_jit(donate="all-except-first")
def train_step(fixed, state, opt, cfg):
    key, k_idx, k_pix, k_pose = jax.random.split(state.key, 4)
    idx = jax.random.randint(k_idx, (cfg.batch,), 0, cfg.n_particles)
    pix = jax.random.randint(k_pix, (cfg.pixels,), 0, fixed.coords.shape[0])

    # E step: a local pose for every particle, drawn from its table
    rows = state.logp[idx]
    cand = jax.random.categorical(k_pose, rows)
    rot = fixed.local[cand] @ fixed.consensus[idx]
    coords = fixed.coords[pix]
    points = jnp.einsum("pi,bij->bpj", coords, rot)
    contrast = ctf(fixed.defocus[idx], jnp.sum(coords**2, -1))
    target = fixed.images[idx[:, None], pix[None, :]]

    (loss, err), grads = eqx.filter_value_and_grad(objective, has_aux=True)(
        (state.decoder, state.z[idx]), points, contrast, target, fixed.freqs, cfg)

    loglik = 0.5 * cfg.pixels * (jnp.mean(err) - err)
    seen = jnp.take_along_axis(rows, cand[:, None], axis=1)[:, 0]
    score = 0.5 * (seen + loglik)
    logp = state.logp.at[idx, cand].set(score)
    loss_avg = 0.98 * state.loss_avg + 0.02 * loss
    state = state._replace(logp=logp, loss_avg=loss_avg, key=key)
    return m_step(state, idx, grads, opt, cfg)


def main():
    n_steps = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
    cfg = Config()
    fixed, conformation = simulate(cfg, np.random.default_rng(cfg.seed))
    opt = make_optimiser(cfg, n_steps)
    state = init_state(cfg, opt)
    print(f"{cfg.n_particles} particles, {fixed.coords.shape[0]} Fourier pixels each, "
          f"pose table {state.logp.nbytes / 2**20:.0f} MiB", flush=True)

    skip = n_steps // 4
    start = time.perf_counter()
    for it in range(n_steps):
        if it == skip:
            jax.block_until_ready(state)
            start = time.perf_counter()
        state = train_step(fixed, state, opt, cfg)
        if (it + 1) % cfg.report_every == 0:
            print(f"step {it + 1:6d}  residual {float(state.loss_avg):.4f}", flush=True)
    jax.block_until_ready(state)
    elapsed = time.perf_counter() - start

    z = np.asarray(state.z) - np.asarray(state.z).mean(0)
    pc = z @ np.linalg.svd(z, full_matrices=False)[2][0]
    print(f"|corr(latent PC, conformation)| = {abs(np.corrcoef(pc, conformation)[0, 1]):.3f}")
    print(f"done {n_steps - skip} steps in {elapsed:.3f} s")


if __name__ == "__main__":
    main()
