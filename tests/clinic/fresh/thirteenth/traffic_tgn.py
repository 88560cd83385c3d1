"""Speed forecasts for a network of road detectors.

Two graph convolutions mix each detector with its neighbours on the road graph, a GRU
runs over the last hour of five-minute readings, and a linear head forecasts the change
of speed over the next half hour.  Plain JAX: parameters are dicts, Adam is written out.

    python traffic_tgn.py [STEPS] [key=value ...]      e.g.  traffic_tgn.py 500 lr=1e-3 hidden=48
"""
import collections
import dataclasses
import functools
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

@dataclasses.dataclass(frozen=True)
class Config:
    steps: int = 2500
    batch: int = 32
    sensors: int = 64
    neighbours: int = 6
    days: int = 240
    history: int = 12          # five-minute readings seen
    horizon: int = 6           # five-minute readings forecast
    conv: int = 16
    hidden: int = 32
    slots: int = 7 * 288       # rows of the calendar embedding
    slot_dim: int = 64
    lr: float = 2e-3
    ramp: int = 200
    clip: float = 5.0
    log_every: int = 100
    seed: int = 0

    @property
    def total(self):
        return self.days * 288

    @property
    def span(self):
        return self.history + self.horizon

    @property
    def split(self):
        return self.total * 9 // 10

def parse(argv):
    changes = {}
    for arg in argv:
        if "=" in arg:
            key, value = arg.split("=", 1)
            changes[key] = type(getattr(Config, key))(value)
        else:
            changes["steps"] = int(arg)
    return dataclasses.replace(Config(), **changes)

@dataclasses.dataclass
class Incident:
    sensor: int
    start: int
    length: int
    drop: float

def simulate(cfg, rng):
    """Readings, one block per detector as the road authority delivers them, and the incident log."""
    tick = np.arange(cfg.total)
    hour = (tick % 288) / 12.0
    weekday = (tick // 288) % 7 < 5
    raw = np.empty((cfg.sensors, cfg.total, 3), np.float32)
    incidents = []
    for sensor in range(cfg.sensors):
        morning = rng.uniform(6, 22) * np.exp(-0.5 * ((hour - rng.normal(8.0, 0.4)) / 1.1) ** 2)
        evening = rng.uniform(6, 22) * np.exp(-0.5 * ((hour - rng.normal(17.2, 0.4)) / 1.4) ** 2)
        speed = rng.uniform(55, 68) - (morning + evening) * np.where(weekday, 1.0, 0.3)
        for start in rng.integers(0, cfg.total - 48, size=6 * cfg.days).tolist():
            incident = Incident(sensor, start, 3 + start % 21, 4.0 + start % 17)
            speed[start:start + incident.length] -= incident.drop
            incidents.append(incident)
        speed = np.clip(speed + rng.normal(0, 1.5, cfg.total), 3, 80)
        valid = rng.random(cfg.total) > 0.03
        raw[sensor, :, 0] = (speed - 55.0) / 12.0 * valid
        raw[sensor, :, 1] = np.clip(1.2 - speed / 70.0, 0, 1) * valid
        raw[sensor, :, 2] = valid
    return raw, incidents

def road_graph(cfg, rng):
    """Edges (source, target, weight) from each detector's nearest neighbours, sorted by target."""
    place = rng.uniform(0, 10, size=(cfg.sensors, 2))
    gap = np.linalg.norm(place[:, None] - place[None], axis=-1)
    np.fill_diagonal(gap, np.inf)
    source = np.argsort(gap, axis=1)[:, :cfg.neighbours].ravel()
    target = np.repeat(np.arange(cfg.sensors), cfg.neighbours)
    weight = np.exp(-(gap[target, source] / (2 * np.median(gap[target, source]))) ** 2)
    weight /= np.repeat(weight.reshape(cfg.sensors, -1).sum(1), cfg.neighbours)
    return (jnp.asarray(source, jnp.int32), jnp.asarray(target, jnp.int32),
            jnp.asarray(weight, jnp.float32))

def init_params(cfg, key):
    keys = iter(jax.random.split(key, 16))
    def dense(rows, cols):
        return jax.random.normal(next(keys), (rows, cols)) * (1.0 / rows) ** 0.5
    convs = [{"own": dense(width, cfg.conv), "near": dense(width, cfg.conv),
              "bias": jnp.zeros(cfg.conv)} for width in (3, cfg.conv)]
    return {
        "convs": convs,
        "clock": {"table": 0.1 * jax.random.normal(next(keys), (cfg.slots, cfg.slot_dim)),
                  "w": dense(cfg.slot_dim, 3 * cfg.hidden)},
        "gru": {"w_in": dense(cfg.conv, 3 * cfg.hidden), "w_rec": dense(cfg.hidden, 3 * cfg.hidden),
                "bias": jnp.zeros(3 * cfg.hidden)},
        "head": {"w": 0.1 * dense(cfg.hidden, cfg.horizon), "bias": jnp.zeros(cfg.horizon)},
    }

def graph_conv(layer, x, edges):
    """x: [sensor, rows, channel]."""
    source, target, weight = edges
    messages = x[source] * weight[:, None, None]
    near = jax.ops.segment_sum(messages, target, num_segments=x.shape[0], indices_are_sorted=True)
    return jax.nn.relu(x @ layer["own"] + near @ layer["near"] + layer["bias"])

def gru(w_rec, gates):
    """gates: [time, sensor, batch, 3 * hidden], the inputs' share of the gates; returns the last state."""
    hidden = w_rec.shape[0]
    def cell(h, gate):
        in_r, in_z, in_n = jnp.split(gate, 3, axis=-1)
        rec_r, rec_z, rec_n = jnp.split(h @ w_rec, 3, axis=-1)
        r, z = jax.nn.sigmoid(in_r + rec_r), jax.nn.sigmoid(in_z + rec_z)
        n = jnp.tanh(in_n + r * rec_n)
        return (1.0 - z) * n + z * h, None
    h, _ = jax.lax.scan(cell, jnp.zeros(gates.shape[1:3] + (hidden,), jnp.float32), gates)
    return h

def forward(params, past, slot, edges):
    """past: [batch, time, sensor, 3], slot: [batch, time]; forecasts [batch, horizon, sensor]."""
    batch, steps, sensors, channels = past.shape
    x = past.transpose(2, 1, 0, 3).reshape(sensors, steps * batch, channels)
    for layer in params["convs"]:
        x = graph_conv(layer, x, edges)
    x = x.reshape(sensors, steps, batch, -1).swapaxes(0, 1)
    clock = params["clock"]["table"][slot] @ params["clock"]["w"]
    gates = x @ params["gru"]["w_in"] + clock.swapaxes(0, 1)[:, None] + params["gru"]["bias"]
    h = gru(params["gru"]["w_rec"], gates)
    change = h @ params["head"]["w"] + params["head"]["bias"]
    return change.transpose(1, 2, 0) + past[:, -1:, :, 0]

def loss_fn(params, series, edges, starts, cfg):
    ticks = starts[:, None] + jnp.arange(cfg.span)
    readings = series[ticks]
    past, future = readings[:, :cfg.history], readings[:, cfg.history:]
    forecast = forward(params, past, ticks[:, :cfg.history] % cfg.slots, edges)
    error = jnp.abs(forecast - future[..., 0])
    huber = jnp.where(error < 1.0, 0.5 * error ** 2, error - 0.5)
    valid = future[..., 2]
    return jnp.sum(huber * valid) / jnp.maximum(jnp.sum(valid), 1.0)

def adam(cfg, state, grads):
    count = state["count"] + 1
    norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(grads)))
    shrink = jnp.minimum(1.0, cfg.clip / (norm + 1e-6))
    grads = jax.tree.map(lambda g: g * shrink, grads)
    mu = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["mu"], grads)
    nu = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, state["nu"], grads)
    lr = cfg.lr * jnp.minimum(1.0, count / cfg.ramp)
    fix_mu, fix_nu = 1.0 - 0.9 ** count, 1.0 - 0.999 ** count
    params = jax.tree.map(lambda p, m, v: p - lr * (m / fix_mu) / (jnp.sqrt(v / fix_nu) + 1e-8),
                          state["params"], mu, nu)
    return {"params": params, "mu": mu, "nu": nu, "count": count, "key": state["key"]}

@functools.partial(jax.jit, static_argnames=("cfg",), donate_argnames=("state",))
def train_step(state, series, edges, cfg):
    key = jax.random.fold_in(state["key"], state["count"])
    starts = jax.random.randint(key, (cfg.batch,), 0, cfg.split - cfg.span)
    loss, grads = jax.value_and_grad(loss_fn)(state["params"], series, edges, starts, cfg)
    return adam(cfg, state, grads), loss

evaluate = jax.jit(loss_fn, static_argnames=("cfg",))

class Journal:
    """Keeps the latest losses (on the device) and prints their mean now and then."""
    def __init__(self, every):
        self.every = every
        self.recent = collections.deque(maxlen=every)

    def record(self, step, loss):
        self.recent.append(loss)
        if step % self.every == 0:
            print(f"step {step:5d}  huber {np.mean(jax.device_get(list(self.recent))):.4f}", flush=True)

def main():
    cfg = parse(sys.argv[1:])
    rng = np.random.default_rng(cfg.seed)
    raw, incidents = simulate(cfg, rng)
    edges = road_graph(cfg, rng)
    series = jax.device_put(np.moveaxis(raw, 0, 1))  # [time, sensor, channel]
    params = init_params(cfg, jax.random.PRNGKey(cfg.seed))
    state = {"params": params, "mu": jax.tree.map(jnp.zeros_like, params),
             "nu": jax.tree.map(jnp.zeros_like, params),
             "count": jnp.zeros((), jnp.int32), "key": jax.random.PRNGKey(cfg.seed + 1)}
    journal = Journal(cfg.log_every)
    warm = max(1, cfg.steps // 4)
    for step in range(1, cfg.steps + 1):
        state, loss = train_step(state, series, edges, cfg)
        journal.record(step, loss)
        if step == warm:
            jax.block_until_ready(state)
            begin = time.perf_counter()
    jax.block_until_ready(state)
    seconds = time.perf_counter() - begin

    held_out = jnp.asarray(np.linspace(cfg.split, cfg.total - cfg.span - 1, 64), jnp.int32)
    score = float(evaluate(state["params"], series, edges, held_out, cfg))
    late = sum(incident.start >= cfg.split for incident in incidents)
    print(f"held-out huber {score:.4f} ({late} of {len(incidents)} incidents fall there)")
    print(f"done {cfg.steps - warm} steps in {seconds:.3f} s")

if __name__ == "__main__":
    main()
