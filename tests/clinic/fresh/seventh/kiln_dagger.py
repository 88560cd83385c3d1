"""DAgger for a fleet of rotary-kiln simulators: a neural policy imitates a clairvoyant
LQ expert, the plants (NumPy) are driven by the policy itself.  Aggregated data lives in
a ring on the device.  The actions have to reach the host each tick, but the update of
the same tick is queued behind them, so the plants advance while the update runs."""
import os
import sys
import time

import numpy as np
import jax
import jax.numpy as jnp
import equinox as eqx
import optax

N_PLANTS = 64
ZONES = 24                    # axial temperature zones of a kiln
N_ACT = 4                     # fuel, draught, feed, rotation
RING = 1 << 18
MINIBATCH = 512


class Fleet:
    """Linearised kilns with slow parameter drift; reset at random."""

    def __init__(self, n, seed):
        self.rng = np.random.default_rng(seed)
        self.n = n
        band = np.eye(ZONES) * 0.9 + np.eye(ZONES, k=-1) * 0.07 + np.eye(ZONES, k=1) * 0.02
        self.A = band.astype(np.float32)
        self.B = (self.rng.standard_normal((N_ACT, ZONES)) * 0.1).astype(np.float32)
        self.K = self._riccati()
        self.x = self.rng.standard_normal((n, ZONES)).astype(np.float32)

    def _riccati(self):
        A, B = self.A.T.astype(float), self.B.T.astype(float)
        P = np.eye(ZONES)
        for _ in range(200):
            S = np.eye(N_ACT) * 0.1 + B.T @ P @ B
            K = np.linalg.solve(S, B.T @ P @ A)
            P = np.eye(ZONES) + A.T @ P @ (A - B @ K)
        return K.T.astype(np.float32)

    def observe(self):
        return self.x + 0.05 * self.rng.standard_normal(self.x.shape, dtype=np.float32)

    def expert(self):
        return np.clip(-self.x @ self.K, -2.0, 2.0)

    def advance(self, act):
        w = 0.1 * self.rng.standard_normal(self.x.shape, dtype=np.float32)
        self.x = self.x @ self.A + np.clip(act, -2, 2) @ self.B + w
        gone = self.rng.random(self.n) < 0.01
        self.x[gone] = self.rng.standard_normal((int(gone.sum()), ZONES), dtype=np.float32)


class Policy(eqx.Module):
    trunk: eqx.nn.MLP
    scale: jax.Array

    def __init__(self, key):
        self.trunk = eqx.nn.MLP(ZONES, N_ACT, 192, 3, activation=jax.nn.silu, key=key)
        self.scale = jnp.ones(N_ACT)

    def __call__(self, o):
        return 2.0 * jnp.tanh(self.trunk(o)) * self.scale


class Learner:
    def __init__(self, seed=0):
        self.params, self.static = eqx.partition(Policy(jax.random.key(seed)), eqx.is_inexact_array)
        self.tx = optax.adamw(optax.warmup_cosine_decay_schedule(0.0, 1e-3, 500, 200_000))
        self.opt = self.tx.init(self.params)
        self.ring = (jnp.zeros((RING, ZONES)), jnp.zeros((RING, N_ACT)))
        self.key = jax.random.key(seed + 1)
        self.act = jax.jit(self._act)
        self.store = jax.jit(self._store, donate_argnums=0)
        self.update = jax.jit(self._update, donate_argnums=(0, 1, 3))

    def _act(self, params, obs):
        return jax.vmap(eqx.combine(params, self.static))(obs)

    def _store(self, ring, obs, act, at):
        return (jax.lax.dynamic_update_slice(ring[0], obs, (at, 0)),
                jax.lax.dynamic_update_slice(ring[1], act, (at, 0)))

    def _update(self, params, opt, ring, key, filled):
        key, sub = jax.random.split(key)
        idx = jax.random.randint(sub, (MINIBATCH,), 0, filled)
        o, a = ring[0][idx], ring[1][idx]

        def loss_fn(p):
            return jnp.mean(optax.huber_loss(self._act(p, o), a))

        loss, g = jax.value_and_grad(loss_fn)(params)
        upd, opt = self.tx.update(g, opt, params)
        return optax.apply_updates(params, upd), opt, key, loss

    def tick(self, fleet, i):
        obs = fleet.observe()
        act = self.act(self.params, obs)
        at = (i * N_PLANTS) % RING
        self.ring = self.store(self.ring, obs, fleet.expert(), at)
        filled = min((i + 1) * N_PLANTS, RING)
        self.params, self.opt, self.key, loss = self.update(
            self.params, self.opt, self.ring, self.key, filled)
        fleet.advance(np.asarray(act))
        return loss


def main(steps):
    fleet, learner = Fleet(N_PLANTS, 5), Learner()
    for i in range(20):
        loss = learner.tick(fleet, i)
    jax.block_until_ready((learner.params, learner.ring))
    began = time.perf_counter()
    for i in range(20, 20 + steps):
        loss = learner.tick(fleet, i)
        if i % 5000 == 0:
            print(f"tick {i}: imitation {float(loss):.5f}, zone rms {np.sqrt((fleet.x ** 2).mean()):.3f}")
    jax.block_until_ready((learner.params, learner.ring))
    print(f"done {steps} steps in {time.perf_counter() - began:.4f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
