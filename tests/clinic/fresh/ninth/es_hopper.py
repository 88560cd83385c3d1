# Evolution strategies on a made-up rover that has to cross bumpy ground.
# Antithetic perturbations are slices of one shared noise table (as in Salimans et al.).
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

POP = 64            # pairs
HORIZON = 60
OBS, HID, ACT = 8, 32, 2
SIGMA = 0.05
LR = 0.03
TABLE = 8_000_000
LOG = 50
WARM = 5
GROUND = np.cumsum(np.random.default_rng(3).normal(0, 0.15, 512)).astype(np.float32)

SHAPES = [(OBS, HID), (HID,), (HID, HID), (HID,), (HID, ACT), (ACT,)]
DIM = sum(int(np.prod(s)) for s in SHAPES)


def unflatten(theta):
    out, at = [], 0
    for s in SHAPES:
        n = int(np.prod(s))
        out.append(theta[at:at + n].reshape(s))
        at += n
    return out


def policy(theta, obs):
    w1, b1, w2, b2, w3, b3 = unflatten(theta)
    h = jnp.tanh(obs @ w1 + b1)
    h = jnp.tanh(h @ w2 + b2)
    return jnp.tanh(h @ w3 + b3)


def height(x):
    return jnp.interp(x, jnp.arange(512, dtype=jnp.float32), jnp.asarray(GROUND))


def observe(s):
    x, v, lean, spin = s
    ahead = height(x + jnp.arange(1.0, 5.0)) - height(x)
    return jnp.concatenate([jnp.stack([v, lean, spin, jnp.sin(lean)]), ahead])


def rollout(theta, start):
    def tick(s, _):
        x, v, lean, spin = s
        obs = observe(s)
        push, twist = policy(theta, obs)
        slope = obs[4]
        v = 0.97 * v + 0.2 * push - 0.1 * slope
        spin = 0.9 * spin + 0.1 * twist + 0.05 * jnp.sin(lean) - 0.02 * slope
        lean = jnp.clip(lean + spin, -1.5, 1.5)
        x = jnp.clip(x + 0.3 * v, 0.0, 500.0)
        gain = v * jnp.cos(lean) - 0.01 * (push**2 + twist**2) - 0.1 * lean**2
        return (x, v, lean, spin), gain

    _, gains = jax.lax.scan(tick, start, None, length=HORIZON)
    return gains.sum()


def ask(table, key):
    """Offsets into the table and the perturbations found there."""
    at = jax.random.randint(key, (POP,), 0, TABLE - DIM)
    return jax.vmap(lambda o: jax.lax.dynamic_slice(table, (o,), (DIM,)))(at)


@jax.jit
def evaluate(theta, table, key):
    k1, k2 = jax.random.split(key)
    eps = ask(table, k1)
    cand = jnp.concatenate([theta + SIGMA * eps, theta - SIGMA * eps])
    x0 = jax.random.uniform(k2, (), minval=0.0, maxval=300.0)
    start = (x0, jnp.float32(0), jnp.float32(0.1), jnp.float32(0))
    fit = jax.vmap(rollout, in_axes=(0, None))(cand, start)
    return fit, eps


def tell(opt, fit, eps):
    theta, m, v, t = opt
    ranks = jnp.argsort(jnp.argsort(fit)).astype(jnp.float32)
    u = ranks / (fit.size - 1) - 0.5
    g = (u[:POP] - u[POP:]) @ eps / (POP * SIGMA) - 0.005 * theta
    t = t + 1
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    step = LR * (m / (1 - 0.9**t)) / (jnp.sqrt(v / (1 - 0.999**t)) + 1e-8)
    return theta + step, m, v, t


tell = jax.jit(tell, donate_argnums=(0,))


def noise_table():
    rng = np.random.default_rng(11)
    return rng.standard_normal(TABLE, dtype=np.float32)


class Curve:
    """Collects fitness statistics, fetched rarely."""

    def __init__(self):
        self.pending = []
        self.best = -1e9

    def add(self, fit):
        self.pending.append(fit)

    def flush(self):
        tops = [float(f.max()) for f in self.pending[-1:]]
        self.best = max([self.best] + tops)
        self.pending.clear()
        return self.best


def main():
    gens = int(sys.argv[1]) if len(sys.argv) > 1 else 6000
    table = jax.device_put(noise_table())
    key = jax.random.PRNGKey(0)
    theta = 0.1 * jax.random.normal(key, (DIM,))
    opt = (theta, jnp.zeros(DIM), jnp.zeros(DIM), jnp.float32(0))
    keys = jax.random.split(jax.random.PRNGKey(1), 4096)
    keys = [k for k in np.asarray(keys)]
    curve = Curve()
    t0 = 0.0
    for g in range(-WARM, gens):
        if g == 0:
            jax.block_until_ready(opt)
            t0 = time.perf_counter()
        fit, eps = evaluate(opt[0], table, keys[g % 4096])
        opt = tell(opt, fit, eps)
        curve.add(fit)
        if g % LOG == LOG - 1:
            print(f"gen {g + 1:6d} best {curve.flush():8.3f}", flush=True)
    jax.block_until_ready(opt)
    took = time.perf_counter() - t0
    print(f"done {gens} steps in {took:.3f} s")


if __name__ == "__main__":
    main()
