"""Variational Monte Carlo for the ground state of small atoms.

Ansatz: a small FermiNet times a Jastrow factor.  Hartree units, nucleus at the origin, spin up first.
"""
import os
import sys
import tempfile
import time
from functools import partial

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random

CFG = {
    "atom": "Be", "charge": 4.0, "n_up": 2, "n_dn": 2, "e_exact": -14.66736,
    "net": {"h": 32, "g": 16, "layers": 2, "dets": 8, "radial": 16, "r_max": 5.0},
    "walkers": 256, "clip": 5.0,
    "mcmc": {"moves": 25, "burn_in": 30, "width": 0.25, "adapt_every": 10, "target": 0.55},
    "opt": {"lr": 2e-3, "delay": 1500.0, "b1": 0.9, "b2": 0.99, "eps": 1e-8, "max_norm": 1.0},
    "steps": 1800, "warmup": 10, "log_every": 50, "eval_every": 300, "eval_sweeps": 4,
    "save_every": 500, "seed": 7,
}


def distances(x):
    r = x.reshape(-1, 3)
    eye = jnp.eye(r.shape[0], dtype=x.dtype)
    ree = r[:, None, :] - r[None, :, :]
    d_en = jnp.linalg.norm(r, axis=-1)
    d_ee = jnp.linalg.norm(ree + eye[..., None], axis=-1) * (1.0 - eye)
    return r, ree, d_en, d_ee


def coulomb(x, charge):
    _, _, d_en, d_ee = distances(x)
    eye = jnp.eye(d_ee.shape[0], dtype=x.dtype)
    return -charge * jnp.sum(1.0 / d_en) + 0.5 * jnp.sum((1.0 - eye) / (d_ee + eye))


def coulomb_np(x, charge):
    """Plain double-precision Coulomb sum, the reference for `coulomb`."""
    r = np.asarray(x, np.float64).reshape(-1, 3)
    v = -charge * np.sum(1.0 / np.linalg.norm(r, axis=-1))
    for i in range(len(r)):
        for j in range(i):
            v += 1.0 / np.linalg.norm(r[i] - r[j])
    return np.asarray(v, np.float32)


def init_params(key, cfg):
    net, z = cfg["net"], cfg["charge"]
    nh, ng, nl, nk, n_in = net["h"], net["g"], net["layers"], net["dets"], 4 + net["radial"]
    keys = iter(random.split(key, 16))

    def dense(n, m, *lead):
        return random.normal(next(keys), (*lead, n, m)) / np.sqrt(n)

    def orbitals(n):
        zeta = np.where(np.arange(n) == 0, z - 0.3, 0.5 * (z - 2.0) + 0.1)
        noise = 0.05 * random.normal(next(keys), (nk, n))
        return {"w": dense(nh, nk * n), "b": jnp.ones((nk * n,)), "zeta": jnp.asarray(zeta, jnp.float32) + noise}

    return {
        "embed": {"w": dense(n_in, nh), "b": jnp.zeros((nh,)), "v": dense(n_in, ng), "c": jnp.zeros((ng,))},
        "layers": {"self": dense(nh, nh, nl), "mean": dense(2 * nh, nh, nl), "pair": dense(2 * ng, nh, nl),
                   "b": jnp.zeros((nl, nh)), "v": dense(ng, ng, nl), "c": jnp.zeros((nl, ng))},
        "up": orbitals(cfg["n_up"]), "dn": orbitals(cfg["n_dn"]), "jastrow": jnp.asarray(1.0, jnp.float32),
    }


def small_det(m):
    if m.shape[-1] == 2:
        return m[..., 0, 0] * m[..., 1, 1] - m[..., 0, 1] * m[..., 1, 0]
    return jnp.linalg.det(m)


def make_logpsi(cfg):
    net, nu, nd, nk = cfg["net"], cfg["n_up"], cfg["n_dn"], cfg["net"]["dets"]
    centres = np.linspace(0.0, net["r_max"], net["radial"], dtype=np.float32)
    inv_width = np.float32(net["radial"] / net["r_max"])
    spin = np.array([1] * nu + [-1] * nd)
    cusp = np.where(spin[:, None] == spin, 0.25, 0.5).astype(np.float32) * (1.0 - np.eye(nu + nd, dtype=np.float32))

    def radial(d):
        return jnp.exp(-((d[..., None] - centres) * inv_width) ** 2)

    def layer(carry, p):
        h, g = carry
        h_mean = jnp.concatenate([h[:nu].mean(0), h[nu:].mean(0)])
        g_mean = jnp.concatenate([g[:, :nu].mean(1), g[:, nu:].mean(1)], axis=-1)
        pre = h @ p["self"] + h_mean @ p["mean"] + g_mean @ p["pair"] + p["b"]
        return (h + jnp.tanh(pre), g + jnp.tanh(g @ p["v"] + p["c"])), None

    def slater(p, h, d_en):
        m = h.shape[0]
        orb = (h @ p["w"] + p["b"]).reshape(m, nk, m)
        orb = orb * jnp.exp(-p["zeta"] * d_en[:, None, None])
        return small_det(jnp.transpose(orb, (1, 0, 2)))

    def logpsi(params, x):
        r, ree, d_en, d_ee = distances(x)
        e = params["embed"]
        one = jnp.concatenate([r, d_en[:, None], radial(d_en)], axis=-1)
        two = jnp.concatenate([ree, d_ee[..., None], radial(d_ee)], axis=-1)
        h = jnp.tanh(one @ e["w"] + e["b"])
        g = jnp.tanh(two @ e["v"] + e["c"])
        (h, g), _ = lax.scan(layer, (h, g), params["layers"])
        psi = jnp.sum(slater(params["up"], h[:nu], d_en[:nu]) * slater(params["dn"], h[nu:], d_en[nu:]))
        jastrow = 0.5 * jnp.sum(cusp * d_ee / (1.0 + jnp.abs(params["jastrow"]) * d_ee))
        return jnp.log(jnp.abs(psi)) + jastrow

    return logpsi


def make_local_energy(logpsi, cfg):
    dim, charge = 3 * (cfg["n_up"] + cfg["n_dn"]), cfg["charge"]

    def local_energy(params, x):
        eye = jnp.eye(dim, dtype=x.dtype)
        grad, hvp = jax.linearize(lambda y: jax.grad(logpsi, argnums=1)(params, y), x)
        lap = lax.fori_loop(0, dim, lambda i, s: s + hvp(eye[i])[i], jnp.zeros((), x.dtype))
        v = coulomb(x, charge)
        return -0.5 * (lap + jnp.sum(grad ** 2)) + v

    return jax.vmap(local_energy, in_axes=(None, 0))


def make_sweep(logpsi, cfg):
    moves = cfg["mcmc"]["moves"]
    batch_logpsi = jax.vmap(logpsi, in_axes=(None, 0))

    def sweep(params, x, key, width):
        def move(_, carry):
            x, logp, key, accepted = carry
            key, k_move, k_acc = random.split(key, 3)
            x_new = x + width * random.normal(k_move, x.shape)
            logp_new = 2.0 * batch_logpsi(params, x_new)
            ok = logp_new - logp > jnp.log(random.uniform(k_acc, logp.shape))
            x = jnp.where(ok[:, None], x_new, x)
            return x, jnp.where(ok, logp_new, logp), key, accepted + jnp.mean(ok)

        start = (x, 2.0 * batch_logpsi(params, x), key, jnp.zeros(()))
        x, _, key, accepted = lax.fori_loop(0, moves, move, start)
        return x, key, accepted / moves

    return jax.jit(sweep, donate_argnums=(1,))


def opt_init(params):
    zeros = partial(jax.tree.map, jnp.zeros_like)
    return {"m": zeros(params), "s": zeros(params), "t": jnp.zeros(())}


def opt_update(grads, opt, params, o):
    """Adam with a global norm limit and the usual 1/(1 + t/delay) decay."""
    t = opt["t"] + 1.0
    norm = jnp.sqrt(sum(jnp.sum(g ** 2) for g in jax.tree.leaves(grads)))
    scale = jnp.minimum(1.0, o["max_norm"] / (norm + 1e-12))
    m = jax.tree.map(lambda a, g: o["b1"] * a + (1 - o["b1"]) * scale * g, opt["m"], grads)
    s = jax.tree.map(lambda a, g: o["b2"] * a + (1 - o["b2"]) * (scale * g) ** 2, opt["s"], grads)
    lr = o["lr"] / (1.0 + t / o["delay"])
    c1, c2 = 1.0 - o["b1"] ** t, 1.0 - o["b2"] ** t
    params = jax.tree.map(lambda p, a, b: p - lr * (a / c1) / (jnp.sqrt(b / c2) + o["eps"]), params, m, s)
    return params, {"m": m, "s": s, "t": t}


def make_train_step(logpsi, local_energy, cfg):
    batch_logpsi = jax.vmap(logpsi, in_axes=(None, 0))

    def train_step(params, opt, x):
        e = local_energy(params, x)
        mid = jnp.median(e)
        spread = jnp.mean(jnp.abs(e - mid))
        clipped = jnp.clip(e, mid - cfg["clip"] * spread, mid + cfg["clip"] * spread)
        energy = jnp.mean(clipped)
        grads = jax.grad(lambda p: 2.0 * jnp.mean((clipped - energy) * batch_logpsi(p, x)))(params)
        params, opt = opt_update(grads, opt, params, cfg["opt"])
        return params, opt, (energy, spread)

    return jax.jit(train_step, donate_argnums=(0, 1))


def save(path, params):
    np.savez(path, **{f"p{i}": a for i, a in enumerate(jax.device_get(jax.tree.leaves(params)))})


def main(cfg, steps):
    mc = cfg["mcmc"]
    k_par, k_x, key = random.split(random.key(cfg["seed"]), 3)
    params = init_params(k_par, cfg)
    opt = opt_init(params)
    x = random.normal(k_x, (cfg["walkers"], 3 * (cfg["n_up"] + cfg["n_dn"])))

    v = jax.vmap(partial(coulomb, charge=cfg["charge"]))(x[:4])
    v_ref = [coulomb_np(r, cfg["charge"]) for r in np.asarray(x[:4])]
    np.testing.assert_allclose(np.asarray(v), v_ref, rtol=1e-3, atol=1e-3)

    logpsi = make_logpsi(cfg)
    local_energy = make_local_energy(logpsi, cfg)
    sweep = make_sweep(logpsi, cfg)
    train_step = make_train_step(logpsi, local_energy, cfg)
    energies = jax.jit(local_energy)

    width = mc["width"]
    for _ in range(mc["burn_in"]):
        x, key, _ = sweep(params, x, key, width)

    folder = tempfile.mkdtemp(prefix="vmc_")
    trace, t0 = [], time.perf_counter()
    for it in range(cfg["warmup"] + steps):
        if it == cfg["warmup"]:
            jax.block_until_ready((params, x))
            t0 = time.perf_counter()
        x, key, pmove = sweep(params, x, key, width)
        params, opt, (energy, spread) = train_step(params, opt, x)
        trace.append((energy, spread, pmove))

        if (it + 1) % mc["adapt_every"] == 0:
            # the newest two steps may still be running, leave them alone
            rows = jax.device_get(trace[-mc["adapt_every"]:-2])
            rate = np.mean([row[2] for row in rows])
            width = float(width * np.exp(0.5 * (rate - mc["target"])))
        if (it + 1) % cfg["log_every"] == 0:
            rows = np.array(jax.device_get(trace[:-2]))
            e, s, p = rows.mean(0)
            print(f"step {it + 1:5d}  E {e:10.5f}  |dE| {s:7.4f}  pmove {p:.2f}  width {width:.3f}", flush=True)
            trace = trace[-2:]
        if it % cfg["eval_every"] == 0:
            samples = []
            for _ in range(cfg["eval_sweeps"]):
                x, key, _ = sweep(params, x, key, width)
                samples.append(energies(params, x))
            e = np.concatenate(jax.device_get(samples))
            print(f"  eval {it:5d}  E {np.median(e):10.5f} (median) {e.mean():10.5f} +- "
                  f"{e.std() / np.sqrt(e.size):.5f}  exact {cfg['e_exact']:.5f}", flush=True)
        if (it + 1) % cfg["save_every"] == 0:
            save(os.path.join(folder, f"{cfg['atom']}_{it + 1}.npz"), params)

    jax.block_until_ready((params, opt, x))
    seconds = time.perf_counter() - t0
    save(os.path.join(folder, f"{cfg['atom']}_last.npz"), params)
    print(f"done {steps} steps in {seconds:.3f} s")


if __name__ == "__main__":
    main(CFG, int(sys.argv[1]) if len(sys.argv) > 1 else CFG["steps"])
