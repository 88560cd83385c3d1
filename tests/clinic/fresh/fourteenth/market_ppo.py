"""Market making with PPO in a little limit-order-book simulator.

Background order flow comes from a pre-simulated tape of trading sessions; the
agent chooses how far from the mid it quotes.   python market_ppo.py [STEPS]
"""
import csv, functools, pickle
import multiprocessing as mp
import sys, tempfile, time
from collections import namedtuple
from pathlib import Path

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax

CONFIG = dict(
    seed=11, warmup=6, default_steps=900,
    n_books=128, ticks_per_rollout=64, levels=24, episode=256,
    sessions=4096, session_ticks=2048, max_quote=6, lot=2.0, risk=2e-3, inv_cap=40.0,
    lam=0.95, horizon=(30.0, 150.0), horizon_growth=0.1, clip=0.2, vf_coef=0.5, ent_coef=0.01,
    epochs=2, minibatches=4, lr=3e-4, grad_norm=0.5, hidden=(64, 64),
    log_every=25, eval_every=100, ckpt_every=400, baseline_workers=2,
)
MOVE, BUY_MO, SELL_MO, BID_LO, ASK_LO, CANCEL, VOL, DRIFT = range(8)   # columns of the tape


# bids[k], asks[k]: depth k+1 ticks from the mid; clock: position in the session
Book = namedtuple("Book", "bids asks inventory session clock age")


def record_tape(cfg):
    """Simulates the background order flow of all sessions: (sessions, ticks, 8)."""
    rng = np.random.default_rng(cfg["seed"])
    n, ticks = cfg["sessions"], cfg["session_ticks"]
    tape = np.empty((n, ticks, 8), np.float32)
    vol, drift = np.ones(n, np.float32), np.zeros(n, np.float32)
    for t in range(ticks):
        z = rng.standard_normal((6, n), dtype=np.float32)
        vol = np.clip(0.98 * vol + 0.02 + 0.05 * z[0], 0.3, 3.0)
        drift = 0.95 * drift + 0.05 * z[1]
        shock, tilt = 0.35 * vol * z[2] + 0.3 * drift, 0.4 * np.tanh(z[5] + drift)
        tape[:, t] = np.stack([np.sign(shock) * (np.abs(shock) > 0.5),
                               np.maximum(0, 3 * vol * (z[3] + drift)),
                               np.maximum(0, 3 * vol * (z[4] - drift)),
                               1 + tilt, 1 - tilt, 0.04 + 0.04 * vol, vol, drift], axis=1)
    return tape


def profile(levels):
    return 0.6 * jnp.exp(-0.15 * jnp.arange(levels, dtype=jnp.float32))


def fresh_book(cfg, key):
    k_session, k_clock = jax.random.split(key)
    base, last = 5 * profile(cfg["levels"]), cfg["session_ticks"] - cfg["episode"] - 1
    return Book(base, base, jnp.float32(0), jax.random.randint(k_session, (), 0, cfg["sessions"]),
                jax.random.randint(k_clock, (), 0, last), jnp.int32(0))


def match(depth, mo, quote, lot):
    """A market order of size mo walks one side; returns the agent's fill and the rest."""
    queue = jnp.cumsum(depth)
    fill = jnp.clip(mo - queue[quote] + 0.5 * depth[quote], 0.0, lot)
    return fill, depth - jnp.clip(mo - fill - (queue - depth), 0.0, depth)


def shift(depth, by):
    away, closer = jnp.append(depth[:1] * 0.2, depth[:-1]), jnp.append(depth[1:], depth[-1:])
    return jnp.where(by > 0, away, jnp.where(by < 0, closer, depth))


def observe(cfg, s, row):
    b, a = s.bids[:4].sum(), s.asks[:4].sum()
    extra = jnp.stack([s.inventory / cfg["inv_cap"], (b - a) / (b + a), row[VOL], row[DRIFT], s.age / 256])
    return jnp.concatenate([jnp.log1p(s.bids[:10]), jnp.log1p(s.asks[:10]), extra])


def tick(cfg, s, row, action, key):
    k_lo, k_reset = jax.random.split(key)
    qb, qa = action // cfg["max_quote"], action % cfg["max_quote"]
    got, bids = match(s.bids, row[SELL_MO], qb, cfg["lot"])
    sold, asks = match(s.asks, row[BUY_MO], qa, cfg["lot"])
    inv = jnp.clip(s.inventory + got - sold, -cfg["inv_cap"], cfg["inv_cap"])
    reward = 0.1 * (got * (qb + 1) + sold * (qa + 1) + inv * row[MOVE]) - cfg["risk"] * inv ** 2
    fresh = profile(cfg["levels"]) * jax.random.uniform(k_lo, (2, cfg["levels"]), minval=0.5, maxval=1.5)
    keep = 1.0 - row[CANCEL]
    bids = shift(bids, row[MOVE]) * keep + row[BID_LO] * fresh[0]
    asks = shift(asks, -row[MOVE]) * keep + row[ASK_LO] * fresh[1]
    nxt = Book(bids, asks, inv, s.session, s.clock + 1, s.age + 1)
    done = nxt.age >= cfg["episode"]
    return jax.tree.map(lambda a, b: jnp.where(done, a, b), fresh_book(cfg, k_reset), nxt), reward, done


def build(cfg, optimizer):
    @hk.without_apply_rng
    @hk.transform
    def agent(obs):
        h = hk.nets.MLP(cfg["hidden"], activation=jnp.tanh, activate_final=True, name="torso")(obs)
        logits = hk.Linear(cfg["max_quote"] ** 2, w_init=hk.initializers.VarianceScaling(0.01))(h)
        return logits, hk.Linear(1, name="value")(h)[..., 0]

    see, advance = (jax.vmap(functools.partial(f, cfg)) for f in (observe, tick))

    @jax.jit
    def init(key):
        k_params, k_books = jax.random.split(key)
        params = agent.init(k_params, jnp.zeros((1, 25)))
        books = jax.vmap(functools.partial(fresh_book, cfg))(jax.random.split(k_books, cfg["n_books"]))
        return params, optimizer.init(params), books

    def play(params, books, tape, key, greedy):
        def one(s, k):
            row = tape[s.session, s.clock]
            obs = see(s, row)
            logits, value = agent.apply(params, obs)
            k_act, k_env = jax.random.split(k)
            action = jnp.argmax(logits, -1) if greedy else jax.random.categorical(k_act, logits)
            logp = jnp.take_along_axis(jax.nn.log_softmax(logits), action[:, None], 1)[:, 0]
            s, reward, done = advance(s, row, action, jax.random.split(k_env, action.shape[0]))
            return s, dict(obs=obs, action=action, logp=logp, value=value, reward=reward, done=done)
        return jax.lax.scan(one, books, jax.random.split(key, cfg["ticks_per_rollout"]))

    @functools.partial(jax.jit, donate_argnames="books")
    def collect(params, books, tape, key):
        books, roll = play(params, books, tape, key, greedy=False)
        return books, roll, agent.apply(params, see(books, tape[books.session, books.clock]))[1]

    @jax.jit
    def advantages(roll, last, gamma, lam):
        def back(carry, x):
            (gae, nxt), (value, reward, done) = carry, x
            gae = reward - value + gamma * (1.0 - done) * (nxt + lam * gae)
            return (gae, value), gae
        xs = roll["value"], roll["reward"], roll["done"].astype(jnp.float32)
        _, adv = jax.lax.scan(back, (jnp.zeros_like(last), last), xs, reverse=True)
        return (adv - adv.mean()) / (adv.std() + 1e-6), adv + roll["value"]

    def loss_fn(params, b):
        logits, value = agent.apply(params, b["obs"])
        logall = jax.nn.log_softmax(logits)
        ratio = jnp.exp(jnp.take_along_axis(logall, b["action"][:, None], 1)[:, 0] - b["logp"])
        pg = -jnp.minimum(ratio * b["adv"], jnp.clip(ratio, 1 - cfg["clip"], 1 + cfg["clip"]) * b["adv"]).mean()
        vf = optax.huber_loss(value, b["target"], delta=5.0).mean()
        ent = -(jnp.exp(logall) * logall).sum(-1).mean()
        return pg + cfg["vf_coef"] * vf - cfg["ent_coef"] * ent, jnp.stack([pg, vf, ent])

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def learn(params, opt_state, roll, adv, target, key):
        data = {k: roll[k] for k in ("obs", "action", "logp")} | dict(adv=adv, target=target)
        data = jax.tree.map(lambda x: x.reshape((-1,) + x.shape[2:]), data)

        def minibatch(carry, idx):
            params, opt_state = carry
            grads, aux = jax.grad(loss_fn, has_aux=True)(params, jax.tree.map(lambda x: x[idx], data))
            updates, opt_state = optimizer.update(grads, opt_state, params)
            return (optax.apply_updates(params, updates), opt_state), aux

        order = jax.vmap(lambda k: jax.random.permutation(k, adv.size))(jax.random.split(key, cfg["epochs"]))
        order = order.reshape(cfg["epochs"] * cfg["minibatches"], -1)
        (params, opt_state), aux = jax.lax.scan(minibatch, (params, opt_state), order)
        return params, opt_state, jnp.append(aux.mean(0), roll["reward"].mean())

    @jax.jit
    def evaluate(params, books, tape, key):
        books, roll = play(params, books, tape, key, greedy=True)
        return roll["reward"].mean(), jnp.abs(books.inventory).mean()

    return init, collect, advantages, learn, evaluate


def baseline_worker(conn, flow):
    """Inventory-skewed quoting on some sessions, in a process of its own; a job is a skew."""
    while (skew := conn.recv()) is not None:
        inv, total = np.zeros(len(flow)), 0.0
        for row in flow.transpose(1, 0, 2)[:256]:
            qb, qa = np.clip(2 + skew * inv, 0, 5), np.clip(2 - skew * inv, 0, 5)
            got, sold = np.clip(row[:, SELL_MO] - 1.5 * qb, 0, 2), np.clip(row[:, BUY_MO] - 1.5 * qa, 0, 2)
            inv = np.clip(inv + got - sold, -40, 40)
            total += (0.1 * (got * (qb + 1) + sold * (qa + 1) + inv * row[:, MOVE]) - 2e-3 * inv ** 2).mean()
        conn.send(total / 256)


def main(cfg):
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else cfg["default_steps"]
    run_dir = Path(tempfile.mkdtemp(prefix="market_ppo_"))
    scalars = csv.writer(open(run_dir / "scalars.csv", "w", newline="", buffering=1))

    def log(step, **values):     # what I use of TensorBoard, as CSV
        scalars.writerows([step, tag, f"{float(v):.5g}"] for tag, v in values.items())

    flow = record_tape(cfg)
    ctx = mp.get_context("spawn")
    pipes, ends = zip(*(ctx.Pipe() for _ in range(cfg["baseline_workers"])))
    for w, (pipe, end) in enumerate(zip(pipes, ends)):
        ctx.Process(target=baseline_worker, args=(end, flow[w::512]), daemon=True).start()
        pipe.send(0.05)
    tape = jax.device_put(flow)
    optimizer = optax.chain(optax.clip_by_global_norm(cfg["grad_norm"]), optax.adam(cfg["lr"]))
    init, collect, advantages, learn, evaluate = build(cfg, optimizer)
    key, k_eval = jax.random.split(jax.random.key(cfg["seed"]))
    params, opt_state, books = init(key)
    evaluate(params, eval_books := init(k_eval)[2], tape, k_eval)
    log(0, baseline_reward=np.mean([pipe.recv() for pipe in pipes]))

    (short, long), pending = cfg["horizon"], None
    for step in range(cfg["warmup"] + steps):
        if step == cfg["warmup"]:
            jax.block_until_ready((params, opt_state, books))
            began = time.perf_counter()
        # the discount's horizon grows as the critic gets better
        gamma = 1.0 - 1.0 / min(short + cfg["horizon_growth"] * step, long)
        key, k_roll, k_learn = jax.random.split(key, 3)
        books, roll, last = collect(params, books, tape, k_roll)
        adv, target = advantages(roll, last, gamma, cfg["lam"])
        params, opt_state, metrics = learn(params, opt_state, roll, adv, target, k_learn)

        if step % cfg["log_every"] == 0:
            if pending is not None:      # written one interval late, so nothing waits here
                log(pending[0], **dict(zip(("pg", "vf", "entropy", "reward"), np.asarray(pending[1]))))
            pending = step, metrics
        if step and step % cfg["eval_every"] == 0:
            for pipe in pipes:           # the baselines answer by the next evaluation
                if pipe.poll():
                    log(step, baseline_reward=pipe.recv())
                pipe.send(0.05 + 1e-4 * step)
            reward, inv = evaluate(params, eval_books, tape, k_eval)
            log(step, eval_reward=reward, eval_inventory=inv)
            print(f"[{step:5d}] eval reward {reward:.4f}  |inventory| {inv:.2f}")
        if step and step % cfg["ckpt_every"] == 0:
            (run_dir / f"params_{step}.pkl").write_bytes(pickle.dumps(jax.device_get(params)))
    jax.block_until_ready((params, opt_state, books))
    seconds = time.perf_counter() - began
    [pipe.send(None) for pipe in pipes]
    print(f"done {steps} steps in {seconds:.3f} s")


if __name__ == "__main__":
    main(dict(CONFIG))
