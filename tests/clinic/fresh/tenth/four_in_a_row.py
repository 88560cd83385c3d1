"""Four-in-a-row learner: many boards are played side by side, the moves go into
a replay store that lives on the device, and a small residual net (flax nnx)
learns value and policy from it."""
import sys
import time
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

ROWS, COLS = 6, 7
BOARDS = 24
STORE = 120_000
SAMPLE = 48
CHANNELS = 24
SKIP = 5


# ------------------------------------------------------------------------ net
class Residual(nnx.Module):
    def __init__(self, ch, rngs):
        self.a = nnx.Conv(ch, ch, (3, 3), rngs=rngs)
        self.b = nnx.Conv(ch, ch, (3, 3), rngs=rngs)
        self.norm = nnx.LayerNorm(ch, rngs=rngs)

    def __call__(self, x):
        return x + self.b(nnx.relu(self.a(nnx.relu(self.norm(x)))))


class Net(nnx.Module):
    def __init__(self, rngs):
        self.stem = nnx.Conv(2, CHANNELS, (3, 3), rngs=rngs)
        self.body = nnx.List([Residual(CHANNELS, rngs) for _ in range(3)])
        self.move = nnx.Linear(ROWS * COLS * CHANNELS, COLS, rngs=rngs)
        self.value = nnx.Linear(ROWS * COLS * CHANNELS, 1, rngs=rngs)

    def __call__(self, planes):
        x = self.stem(planes)
        for block in self.body:
            x = block(x)
        x = nnx.relu(x).reshape(x.shape[0], -1)
        return self.move(x), jnp.tanh(self.value(x)[:, 0])


# ----------------------------------------------------------------------- game
def four(plane):                                   # (B, ROWS, COLS) of 0/1
    hit = jnp.zeros(plane.shape[0], bool)
    for dr, dc in ((0, 1), (1, 0), (1, 1), (1, -1)):
        line = plane
        for k in range(1, 4):
            moved = jnp.roll(plane, (-k * dr, -k * dc), (1, 2))
            rows = jnp.arange(ROWS)[:, None] + k * dr
            cols = jnp.arange(COLS)[None] + k * dc
            line = line * moved * ((rows < ROWS) & (cols < COLS) & (cols >= 0))
        hit |= line.sum((1, 2)) > 0
    return hit


@jax.jit
def play(boards, moves):
    """Boards are seen by the player to move: plane 0 own stones, plane 1 the other's."""
    height = boards.sum((1, 3))
    row = ROWS - 1 - jnp.take_along_axis(height, moves[:, None], 1)[:, 0].astype(int)
    own = boards[..., 0].at[jnp.arange(len(moves)), row, moves].set(1.0)
    won = four(own)
    after = jnp.stack([boards[..., 1], own], -1)
    over = won | (after.sum((1, 2, 3)) >= ROWS * COLS)
    return jnp.where(over[:, None, None, None], 0.0, after), won.astype(jnp.float32), over


def choose(weights, boards, key, temperature):
    logits, _ = nnx.merge(GRAPH, weights)(boards)
    full = boards[:, 0].sum(-1) > 0
    return jax.random.categorical(key, jnp.where(full, -1e9, logits / temperature))


# --------------------------------------------------------------------- replay
def empty_store():
    return {"board": jnp.zeros((STORE, ROWS, COLS, 2)), "after": jnp.zeros((STORE, ROWS, COLS, 2)),
            "move": jnp.zeros(STORE, jnp.int32), "reward": jnp.zeros(STORE), "over": jnp.zeros(STORE, bool)}


def remember(store, at, rows):
    return {k: jax.lax.dynamic_update_slice_in_dim(store[k], rows[k].astype(store[k].dtype), at, 0)
            for k in store}


remember = jax.jit(remember, donate_argnums=0)


# -------------------------------------------------------------------- learner
def learn(weights, opt, store, filled, key):
    rows = jax.random.randint(key, (SAMPLE,), 0, filled)
    batch = {k: v[rows] for k, v in store.items()}

    def loss(w):
        net = nnx.merge(GRAPH, w)
        logits, value = net(batch["board"])
        _, after = net(batch["after"])
        target = jax.lax.stop_gradient(batch["reward"] - jnp.where(batch["over"], 0.0, 0.98 * after))
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), batch["move"][:, None], 1)[:, 0]
        edge = jnp.clip(jax.lax.stop_gradient(target - value), 0, 1)
        return jnp.mean((value - target) ** 2) - 0.2 * jnp.mean(edge * chosen)

    value, grads = jax.value_and_grad(loss)(weights)
    updates, opt = TX.update(grads, opt, weights)
    return optax.apply_updates(weights, updates), opt, value


GRAPH, START = nnx.split(Net(nnx.Rngs(0)))
TX = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3))


@dataclass
class Actor:
    key: jax.Array
    boards: jax.Array = field(default_factory=lambda: jnp.zeros((BOARDS, ROWS, COLS, 2)))
    weights: object = None
    pick: object = None

    def __post_init__(self):
        self.pick = jax.jit(choose)

    def refresh(self, weights):
        """Actors play with a copy of the weights that is a few steps old."""
        self.weights = jax.tree.map(jnp.copy, weights)

    def advance(self, temperature):
        self.key, sub = jax.random.split(self.key)
        moves = self.pick(self.weights, self.boards, sub, temperature)
        before = self.boards
        self.boards, reward, over = play(before, moves)
        return {"board": before, "after": self.boards, "move": moves, "reward": reward, "over": over}


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    learn_step = jax.jit(learn, donate_argnums=(0, 1))
    weights, opt = START, TX.init(START)
    actor = Actor(jax.random.PRNGKey(5))
    store, cursor, filled = empty_store(), 0, 0
    keys = jax.random.split(jax.random.PRNGKey(6), steps + SKIP)
    keys = np.asarray(keys)
    clock = 0.0
    for i in range(steps + SKIP):
        if i == SKIP:
            jax.block_until_ready((weights, store))
            clock = time.perf_counter()
        if i % 10 == 0:
            actor.refresh(weights)
        rows = actor.advance(np.float32(max(0.4, 1.0 - i / 4000)))
        store = remember(store, cursor, rows)
        cursor = (cursor + BOARDS) % STORE
        filled = min(filled + BOARDS, STORE)
        weights, opt, loss = learn_step(weights, opt, store, filled, keys[i])
        if i % 100 == 99:
            print(f"{i + 1:6d}: loss {float(loss):.4f}, store {filled}")
    jax.block_until_ready((weights, opt, store))
    clock = time.perf_counter() - clock
    print(f"done {steps} steps in {clock:.3f} s")


if __name__ == "__main__":
    main()
