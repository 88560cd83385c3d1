"""Small radiance field (haiku) fitted to renders of coloured blobs."""
import queue
import sys
import threading
import time
from typing import NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax

N_CAMERAS, SIDE = 40, 40
N_RAYS = N_CAMERAS * SIDE * SIDE
RAYS_PER_BATCH, N_SAMPLES = 1024, 32
NEAR, FAR = 1.5, 4.5
FREQS = 6


# ------------------------------------------------------------------ scene
def look_at(k):
    ang = 2 * np.pi * k / N_CAMERAS
    eye = np.array([3 * np.cos(ang), 3 * np.sin(ang), 0.8 * np.sin(3 * ang)])
    fwd = -eye / np.linalg.norm(eye)
    right = np.cross(fwd, [0, 0, 1.0])
    right /= np.linalg.norm(right)
    return eye, np.stack([right, np.cross(right, fwd), fwd])


def shoot(rays):
    """ray numbers -> origins and directions"""
    cam, pix = np.divmod(rays, SIDE * SIDE)
    uv = np.stack([pix % SIDE, pix // SIDE], -1) / (SIDE - 1) - 0.5
    local = np.concatenate([uv, np.full((len(rays), 1), 1.2)], -1)
    eyes, rots = zip(*(look_at(k) for k in range(N_CAMERAS)))
    d = np.einsum("ni,nij->nj", local, np.stack(rots)[cam])
    return np.stack(eyes)[cam], d / np.linalg.norm(d, axis=-1, keepdims=True)


def render_truth(o, d, seed=5):
    rng = np.random.default_rng(seed)
    rgb, trans = np.zeros_like(o), np.ones((len(o), 1))
    for centre, colour in zip(rng.normal(0, 0.5, (5, 3)), rng.random((5, 3))):
        t = ((centre - o) * d).sum(-1, keepdims=True)
        alpha = 0.9 * np.exp(-8 * ((o + t * d - centre) ** 2).sum(-1, keepdims=True))
        rgb, trans = rgb + trans * alpha * colour, trans * (1 - alpha)
    return rgb + trans


class Rays(NamedTuple):
    origin: np.ndarray
    direction: np.ndarray
    rgb: np.ndarray
    camera: np.ndarray
    number: np.ndarray


def build_table():
    number = np.arange(N_RAYS)
    o, d = shoot(number)
    f32 = lambda a: np.asarray(a, np.float32)
    return Rays(f32(o), f32(d), f32(render_truth(o, d)), (number // SIDE ** 2).astype(np.int32),
                number.astype(np.int32))


class RayFeeder:
    """Keeps a few random ray batches ready."""

    def __init__(self, table, depth=4):
        self.table, self.rng = table, np.random.default_rng(0)
        self.ready = queue.Queue(maxsize=depth)
        threading.Thread(target=self._work, daemon=True).start()

    def make(self):
        pick = self.rng.integers(0, N_RAYS, RAYS_PER_BATCH)
        return Rays(*(col[pick] for col in self.table))

    def _work(self):
        while True:
            self.ready.put(self.make())

    def __next__(self):
        return self.ready.get()


# ------------------------------------------------------------------ model
def encode(x):
    ang = x[..., None, :] * (2.0 ** jnp.arange(FREQS))[:, None]
    ang = ang.reshape(*x.shape[:-1], -1)
    return jnp.concatenate([x, jnp.sin(ang), jnp.cos(ang)], -1)


def field(points, dirs, rays):
    h = hk.nets.MLP([64, 64, 64], activate_final=True, name="trunk")(encode(points))
    sigma = jax.nn.softplus(hk.Linear(1, name="sigma")(h))[..., 0]
    look = hk.Embed(N_CAMERAS, 8, name="exposure")(rays.camera)
    look = jnp.broadcast_to(look[:, None], (*points.shape[:-1], look.shape[-1]))
    view = jnp.broadcast_to(dirs[:, None], points.shape)
    c = jax.nn.relu(hk.Linear(32, name="colour")(jnp.concatenate([h, view, look], -1)))
    return sigma, jax.nn.sigmoid(hk.Linear(3, name="rgb")(c))


def render(rays):
    step = (FAR - NEAR) / N_SAMPLES
    jitter = jax.random.uniform(hk.next_rng_key(), (rays.origin.shape[0], N_SAMPLES))
    t = NEAR + (jnp.arange(N_SAMPLES) + jitter) * step
    pts = rays.origin[:, None] + t[..., None] * rays.direction[:, None]
    sigma, rgb = field(pts, rays.direction, rays)
    alpha = 1 - jnp.exp(-sigma * step)
    trans = jnp.cumprod(1 - alpha + 1e-7, -1)
    w = alpha * jnp.concatenate([jnp.ones_like(trans[:, :1]), trans[:, :-1]], -1)
    return (w[..., None] * rgb).sum(1) + (1 - w.sum(-1, keepdims=True))


model = hk.transform(render)
tx = optax.adam(optax.exponential_decay(5e-3, 2000, 0.7))


def train_step(params, opt, key, rays):
    key, sub = jax.random.split(key)
    loss, g = jax.value_and_grad(lambda p: jnp.mean((model.apply(p, sub, rays) - rays.rgb) ** 2))(params)
    up, opt = tx.update(g, opt)
    return optax.apply_updates(params, up), opt, key, loss


update = jax.jit(train_step, donate_argnums=(0, 1, 2))


def run(steps):
    feeder = RayFeeder(build_table())
    key = jax.random.PRNGKey(42)
    params = model.init(key, next(feeder))
    opt = tx.init(params)
    for _ in range(5):
        params, opt, key, loss = update(params, opt, key, next(feeder))
    jax.block_until_ready(params)
    tic = time.perf_counter()
    for i in range(steps):
        params, opt, key, loss = update(params, opt, key, next(feeder))
        if i % 250 == 249:
            print(f"step {i + 1}: psnr {-10 * np.log10(float(loss)):.2f} dB")
    jax.block_until_ready(params)
    print(f"done {steps} steps in {time.perf_counter() - tic:.4f} s")


if __name__ == "__main__":
    run(int(sys.argv[1]) if len(sys.argv) > 1 else 3000)
