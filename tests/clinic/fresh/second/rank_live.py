"""Learning to rank from live traffic: simulated shoppers, a scoring server that batches, a learner.

Shopper threads ask the server to score some fifty candidates, look down the ranked list and click. The
server's thread collects waiting requests into one padded batch per model call. Impressions go into a
ring buffer, from which the learner (main thread) samples lists. One step: take in FRESH new impressions
and make one listwise update.

    python rank_live.py [STEPS]
"""
import queue
import sys
import threading
import time
from concurrent.futures import Future

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training.train_state import TrainState

ITEMS, SHOPPERS, TASTE = 30_000, 2_000, 16
CANDIDATES, DENSE = 48, 12
THREADS = 24
MAX_REQUESTS = 16         # rows of the server's padded batch
PATIENCE = 0.001          # seconds that the server waits for company
FRESH = 32
SAMENESS = 0.5            # how much candidates like those above them lose
LISTS = 48
CAPACITY = 20_000


class World:
    """True tastes, item qualities, and how people click."""

    def __init__(self, seed=0):
        rng = np.random.default_rng(seed)
        self.item = rng.standard_normal((ITEMS, TASTE)).astype(np.float32) / 4
        self.shopper = rng.standard_normal((SHOPPERS, TASTE)).astype(np.float32)
        self.price = rng.gamma(2.0, 1.0, ITEMS).astype(np.float32)
        self.notice = 1.0 / np.log2(np.arange(CANDIDATES) + 2.0)

    def request(self, rng):
        shopper = int(rng.integers(SHOPPERS))
        items = rng.integers(0, ITEMS, CANDIDATES).astype(np.int32)
        dense = np.empty((CANDIDATES, DENSE), np.float32)
        dense[:, :8] = self.shopper[shopper, :8] + 0.3 * rng.standard_normal((CANDIDATES, 8))
        dense[:, 8] = self.price[items]
        dense[:, 9:] = rng.standard_normal((CANDIDATES, 3))
        return shopper, items, dense

    def clicks(self, rng, shopper, items, dense, order):
        wish = self.item[items] @ self.shopper[shopper] - 0.4 * self.price[items] + 0.3 * dense[:, 9]
        seen = np.zeros(CANDIDATES)
        seen[order] = self.notice
        p = seen / (1 + np.exp(-wish))
        return (rng.random(CANDIDATES) < p).astype(np.float32)


class Ranker(nn.Module):
    """Item embedding and dense features through a small network, one score per candidate."""
    width: int = 96

    @nn.compact
    def __call__(self, items, dense):
        e = nn.Embed(ITEMS, 32)(items)
        x = jnp.concatenate([e, dense], -1)
        for _ in range(3):
            x = nn.swish(nn.Dense(self.width)(nn.LayerNorm()(x)))
        return nn.Dense(1)(x)[..., 0]


model = Ranker()


def diversified(params, items, dense):
    """Greedy re-ranking: each place goes to the best candidate that is not too like those above it."""
    e = params["params"]["Embed_0"]["embedding"][items]
    e = e / (jnp.linalg.norm(e, axis=-1, keepdims=True) + 1e-6)
    alike = jnp.einsum("bie,bje->bij", e, e)
    raw = nn.log_softmax(model.apply(params, items, dense))

    def place(carry, rank):
        left, nearest = carry
        best = (left - SAMENESS * nearest).argmax(-1)
        taken = jax.nn.one_hot(best, CANDIDATES)
        nearest = jnp.maximum(nearest, jnp.einsum("bi,bij->bj", taken, alike))
        return (left - 1e6 * taken, nearest), (CANDIDATES - rank) * taken

    _, places = jax.lax.scan(place, (raw, jnp.zeros_like(raw)), jnp.arange(CANDIDATES, dtype=raw.dtype))
    return places.sum(0)


score = jax.jit(diversified)


def listwise_loss(params, items, dense, clicked):
    logp = nn.log_softmax(model.apply(params, items, dense))
    weight = clicked / jnp.maximum(clicked.sum(-1, keepdims=True), 1.0)
    return -(weight * logp).sum(-1).mean()


@jax.jit
def learn(state, items, dense, clicked):
    loss, grads = jax.value_and_grad(listwise_loss)(state.params, items, dense, clicked)
    return state.apply_gradients(grads=grads), loss


class Server(threading.Thread):
    """Scores requests of many threads with one call of the model for those that wait together."""

    def __init__(self, params):
        super().__init__(daemon=True)
        self.params = params
        self.inbox = queue.Queue()
        self.calls = self.served = 0

    def publish(self, params):
        self.params = params

    def ask(self, items, dense):
        answer = Future()
        self.inbox.put((items, dense, answer))
        return answer.result()

    def close(self):
        self.inbox.put(None)
        self.join()

    def collect(self):
        group = [self.inbox.get()]
        until = time.perf_counter() + PATIENCE
        while len(group) < MAX_REQUESTS:
            if group[-1] is None:             # closing time
                break
            try:
                group.append(self.inbox.get(timeout=max(0.0, until - time.perf_counter())))
            except queue.Empty:
                break
        return group

    def run(self):
        while (group := self.collect())[-1] is not None:
            items = np.zeros((MAX_REQUESTS, CANDIDATES), np.int32)
            dense = np.zeros((MAX_REQUESTS, CANDIDATES, DENSE), np.float32)
            for row, (i, d, _) in enumerate(group):
                items[row], dense[row] = i, d
            scores = np.asarray(score(self.params, items, dense))
            for row, (_, _, answer) in enumerate(group):
                answer.set_result(scores[row])
            self.calls += 1
            self.served += len(group)


class Log:
    """A ring of impressions in three flat arrays."""

    def __init__(self, seed):
        self.items = np.zeros((CAPACITY, CANDIDATES), np.int32)
        self.dense = np.zeros((CAPACITY, CANDIDATES, DENSE), np.float32)
        self.clicked = np.zeros((CAPACITY, CANDIDATES), np.float32)
        self.count = 0
        self.rng = np.random.default_rng(seed)

    def add(self, items, dense, clicked):
        at = self.count % CAPACITY
        self.items[at], self.dense[at], self.clicked[at] = items, dense, clicked
        self.count += 1

    def sample(self, n):
        rows = self.rng.integers(0, min(self.count, CAPACITY), n)
        return self.items[rows], self.dense[rows], self.clicked[rows]


def shop(number, world, server, impressions):
    rng = np.random.default_rng(number)
    while True:
        shopper, items, dense = world.request(rng)
        scores = server.ask(items, dense)
        order = np.argsort(-scores)
        impressions.put((items, dense, world.clicks(rng, shopper, items, dense, order)))


def reciprocal_rank(params, items, dense, clicked):
    order = np.argsort(-np.asarray(score(params, items, dense)), axis=1)
    hits = np.take_along_axis(clicked, order, 1)
    first = hits.argmax(1)[hits.any(1)]
    return float(np.mean(1.0 / (first + 1)))


def main(steps):
    world = World()
    params = model.init(jax.random.PRNGKey(0), np.zeros((1, CANDIDATES), np.int32),
                        np.zeros((1, CANDIDATES, DENSE), np.float32))
    state = TrainState.create(apply_fn=model.apply, params=params, tx=optax.adam(1e-3))
    server, log, impressions = Server(params), Log(1), queue.Queue(maxsize=4 * FRESH)
    server.start()
    for n in range(THREADS):
        threading.Thread(target=shop, args=(n, world, server, impressions), daemon=True).start()

    start = 0.0
    for step in range(steps):
        if step == 5:
            jax.block_until_ready(state.params)
            start = time.perf_counter()
        for _ in range(FRESH):
            log.add(*impressions.get())
        state, loss = learn(state, *log.sample(LISTS))
        server.publish(state.params)
        if (step + 1) % 500 == 0:
            print(f"step {step + 1} loss {float(loss):.3f} mrr "
                  f"{reciprocal_rank(state.params, *log.sample(LISTS)):.3f} "
                  f"requests a call {server.served / server.calls:.1f}", flush=True)
    jax.block_until_ready(state.params)
    seconds = time.perf_counter() - start
    server.close()
    print(f"done {steps - 5} steps in {seconds:.3f} s", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 5000)
