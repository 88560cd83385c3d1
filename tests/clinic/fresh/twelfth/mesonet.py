"""Nowcasts for a small mesonet: four quantities at 32 stations, 3 to 24 hours ahead.

A gated temporal convolution runs over the last day of three-hourly reports; after each
layer the stations exchange information through a learned affinity between neighbours.
All four quantities are trained together, weighted by learned uncertainties.
"""
import collections
import queue
import sys
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

STATIONS = 32
REPORTS = 6000                       # a little more than two years, every three hours
TASKS = ("t2m", "td2m", "mslp", "wind")
LEADS = np.array([1, 2, 4, 8])       # in reports: +3, +6, +12 and +24 hours
HISTORY = 8
WIDTH = 16
BATCH = 32
GROSS_ERROR = 6.0                    # standard deviations from the station's climate
HELD_OUT = 600                       # the last reports are kept for the final check
REAL = np.float32


# ---------------------------------------------------------------- the archive

def synthetic_archive(rng):
    """Reports (time, station, task) with travelling fronts, day, season and outages."""
    place = rng.uniform(0.0, 600.0, (STATIONS, 2))
    height = rng.gamma(2.0, 150.0, STATIONS)
    modes = 8
    phase = place @ rng.normal(0.0, 1.0 / 90.0, (modes, 2)).T
    drift = rng.uniform(0.05, 0.4, modes)
    strength = np.zeros((REPORTS, modes))
    kicks = 0.25 * rng.normal(size=(REPORTS, modes))
    for t in range(1, REPORTS):
        strength[t] = 0.97 * strength[t - 1] + kicks[t]
    t = np.arange(REPORTS)
    fronts = strength[:, None, :] * np.cos(phase[None] - drift * t[:, None, None])
    reports = fronts @ rng.normal(size=(modes, len(TASKS)))
    day = np.sin(2 * np.pi * t / 8)[:, None]
    season = np.cos(2 * np.pi * t / 2922)[:, None]
    reports[..., 0] += 12.0 + 3.0 * day - 8.0 * season - 0.0065 * height
    reports[..., 1] += 6.0 + 0.8 * day - 6.0 * season - 0.005 * height
    reports[..., 2] += 1013.0 + 1.5 * season
    reports[..., 3] = np.abs(reports[..., 3] + 3.0 + day)
    reports += 0.3 * rng.normal(size=reports.shape)
    for _ in range(6000):            # telemetry drops out for some hours
        start = rng.integers(0, REPORTS - 12)
        length = rng.integers(2, 12)
        reports[start:start + length, rng.integers(STATIONS), rng.integers(len(TASKS))] = np.nan
    return place, reports


def fill_gaps(series):
    """Interpolates over outages and gross errors; climatology where nothing is left."""
    out = series.copy()
    when = np.arange(len(series))
    for station in range(series.shape[1]):
        for task in range(series.shape[2]):
            column = out[:, station, task]
            good = np.isfinite(column) & (np.abs(column) < GROSS_ERROR)
            if good.all():
                continue
            column[~good] = np.interp(when[~good], when[good], column[good]) if good.any() else 0.0
    return out


class ReportBank:
    """The standardised archive, cut into (history, targets) windows on request."""

    def __init__(self, reports):
        climate, spread = np.nanmean(reports, axis=0), np.nanstd(reports, axis=0)
        self.standard = ((reports - climate) / spread).astype(REAL)
        self.filled = fill_gaps(self.standard)
        t = np.arange(len(reports))
        day, year = 2 * np.pi * t / 8, 2 * np.pi * t / 2922
        self.clock = np.stack([np.sin(day), np.cos(day), np.sin(year), np.cos(year)], -1).astype(REAL)

    def windows(self, starts):
        past = starts[:, None] + np.arange(HISTORY)
        ahead = starts[:, None] + HISTORY - 1 + LEADS
        x = self.filled[past]
        clock = np.broadcast_to(self.clock[past][:, :, None], x.shape[:3] + (4,))
        y = self.standard[ahead]
        seen = np.isfinite(y)
        return {
            "x": np.concatenate([x, clock], axis=-1),
            "y": np.where(seen, y, 0),
            "seen": seen.astype(REAL),
        }


class Feeder:
    """Draws windows in a thread of its own and keeps a few on the device."""

    def __init__(self, bank, last, seed, depth=4):
        self.bank, self.last = bank, last
        self.rng = np.random.default_rng(seed)
        self.ready = queue.Queue(depth)
        self.stopping = threading.Event()
        self.worker = threading.Thread(target=self._work, daemon=True)
        self.worker.start()

    def _work(self):
        while not self.stopping.is_set():
            try:
                starts = self.rng.integers(0, self.last, BATCH)
                item = jax.device_put(self.bank.windows(starts))
            except Exception as error:
                item = error
                self.stopping.set()
            self.ready.put(item)

    def __next__(self):
        item = self.ready.get()
        if isinstance(item, Exception):
            raise item
        return item

    def close(self):
        self.stopping.set()
        while self.worker.is_alive():
            try:
                self.ready.get(timeout=0.1)
            except queue.Empty:
                pass


# ---------------------------------------------------------------- the network

class GatedGraphBlock(nnx.Module):
    """Two taps in time with a gate, then an exchange between the stations."""

    def __init__(self, dilation, *, rngs):
        self.dilation = dilation
        self.now = nnx.Linear(WIDTH, 2 * WIDTH, rngs=rngs)
        self.before = nnx.Linear(WIDTH, 2 * WIDTH, use_bias=False, rngs=rngs)
        self.own = nnx.Linear(WIDTH, WIDTH, rngs=rngs)
        self.around = nnx.Linear(WIDTH, WIDTH, use_bias=False, rngs=rngs)
        self.norm = nnx.LayerNorm(WIDTH, rngs=rngs)

    def __call__(self, h, mix):                     # h: (batch, time, station, width)
        late, early = h[:, self.dilation:], h[:, :-self.dilation]
        value, gate = jnp.split(self.now(late) + self.before(early), 2, axis=-1)
        g = jnp.tanh(value) * nnx.sigmoid(gate)
        exchanged = jnp.einsum("ij,btjc->btic", mix, g)
        return self.norm(late + self.own(g) + self.around(exchanged))


class StationForecaster(nnx.Module):
    def __init__(self, place, *, rngs):
        distance = np.linalg.norm(place[:, None] - place[None], axis=-1)
        self.affinity = nnx.Param(jnp.asarray((-distance / 120.0).astype(REAL)))
        self.site = nnx.Param(0.1 * jax.random.normal(rngs.params(), (STATIONS, WIDTH)))
        self.lift = nnx.Linear(len(TASKS) + 4, WIDTH, rngs=rngs)
        self.blocks = nnx.List([GatedGraphBlock(d, rngs=rngs) for d in (1, 2, 4)])
        self.head = nnx.Linear(WIDTH, len(LEADS) * len(TASKS), rngs=rngs)
        self.log_var = nnx.Param(jnp.zeros(len(TASKS)))

    def __call__(self, x):                          # (batch, history, station, feature)
        mix = nnx.softmax(self.affinity[...], axis=-1)
        h = self.lift(x) + self.site[...]
        for block in self.blocks:
            h = block(h, mix)
        change = self.head(nnx.relu(h[:, -1]))      # (batch, station, lead * task)
        change = change.reshape(change.shape[:2] + (len(LEADS), len(TASKS)))
        return x[:, -1:, :, :len(TASKS)] + jnp.moveaxis(change, 2, 1)


class Scoreboard(nnx.Module):
    """Running mean absolute error of each station and task, kept with the model."""

    def __init__(self):
        self.mae = nnx.Variable(jnp.zeros((STATIONS, len(TASKS))))


@nnx.jit(donate_argnames=("model", "optimizer", "board"))
def train_step(model, optimizer, board, batch):
    def loss_fn(model):
        error = model(batch["x"]) - batch["y"]
        count = jnp.maximum(batch["seen"].sum((0, 1)), 1.0)
        mae = (jnp.abs(error) * batch["seen"]).sum((0, 1)) / count
        huber = optax.huber_loss(error) * batch["seen"]
        per_task = huber.sum((0, 1, 2)) / count.sum(0)
        log_var = model.log_var[...]
        return jnp.sum(jnp.exp(-log_var) * per_task + 0.5 * log_var), mae

    (loss, mae), grads = nnx.value_and_grad(loss_fn, has_aux=True)(model)
    optimizer.update(model, grads)
    board.mae[...] = 0.98 * board.mae[...] + 0.02 * mae
    return loss


@nnx.jit
def forecast(model, x):
    return model(x)


class Bulletin:
    """What the verification page shows: a short series for each station and task."""

    def __init__(self):
        self.losses = collections.deque(maxlen=512)
        self.series = {(s, task): collections.deque(maxlen=512) for s in range(STATIONS) for task in TASKS}

    def record(self, loss, mae):
        self.losses.append(loss)
        for s in range(STATIONS):
            for k, task in enumerate(TASKS):
                self.series[s, task].append(float(mae[s, k]))

    def line(self):
        means = (np.mean([self.series[s, task][-1] for s in range(STATIONS)]) for task in TASKS)
        return " ".join(f"{task} {mean:.3f}" for task, mean in zip(TASKS, means))


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
    place, reports = synthetic_archive(np.random.default_rng(12))
    bank = ReportBank(reports)
    span = HISTORY + int(LEADS.max())
    feed = Feeder(bank, REPORTS - HELD_OUT - span, seed=3)

    model = StationForecaster(place, rngs=nnx.Rngs(0))
    rate = optax.cosine_decay_schedule(3e-3, max(steps, 1), alpha=0.05)
    optimizer = nnx.Optimizer(model, optax.chain(optax.clip_by_global_norm(5.0), optax.adamw(rate)), wrt=nnx.Param)
    board, bulletin = Scoreboard(), Bulletin()
    advance = nnx.cached_partial(train_step, model, optimizer, board)

    warm = steps // 4
    loss, begun = jnp.zeros(()), time.perf_counter()
    for step in range(steps):
        if step == warm:
            jax.block_until_ready(loss)
            begun = time.perf_counter()
        loss = advance(next(feed))
        if step % 100 == 99:
            bulletin.record(float(loss), np.asarray(board.mae[...]))
            print(f"step {step + 1:5d}  loss {bulletin.losses[-1]:7.4f}  mae {bulletin.line()}", flush=True)
    jax.block_until_ready(loss)
    elapsed = time.perf_counter() - begun
    feed.close()

    check = bank.windows(np.arange(REPORTS - HELD_OUT, REPORTS - span, 5))
    miss = np.abs(np.asarray(forecast(model, check["x"])) - check["y"]) * check["seen"]
    persist = np.abs(check["x"][:, -1:, :, :len(TASKS)] - check["y"]) * check["seen"]
    print("held out: error / persistence", np.round(miss.sum((0, 2)) / persist.sum((0, 2)), 2).tolist())
    print(f"done {steps - warm} steps in {elapsed:.3f} s")


if __name__ == "__main__":
    main()
