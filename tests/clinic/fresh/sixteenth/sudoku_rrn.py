"""Recurrent relational network for 6x6 sudoku (2x3 boxes), after Palm et al. 2018.

Every cell is a node; it exchanges messages with the twelve cells that share its row, column or box. The network is
supervised after each round of messages. While it trains, an answer desk fills in puzzles that came in by post.
"""
import os
import sys
import tempfile
import time

import flax.nnx as nnx
import grain
import jax
import jax.numpy as jnp
import numpy as np
import optax

SIDE, BOX_ROWS, BOX_COLS = 6, 2, 3
CELLS = SIDE * SIDE
WIDTH = 24
READOUT = 64
ROUNDS = 6
BATCH = 48
PEAK_LR = 2e-3
WARMUP_STEPS = 5
LOG_EVERY = 2400 // BATCH
EVAL_EVERY = 9600 // BATCH
SAVE_EVERY = 19200 // BATCH
SERVE_EVERY = 192 // BATCH
REQUESTS = 96
PASSES = 2
CONFIDENT = 0.9


def board_graph():
    rows, cols = np.divmod(np.arange(CELLS), SIDE)
    boxes = (rows // BOX_ROWS) * (SIDE // BOX_COLS) + cols // BOX_COLS
    linked = (rows[:, None] == rows) | (cols[:, None] == cols) | (boxes[:, None] == boxes)
    np.fill_diagonal(linked, False)
    neighbours = np.stack([np.flatnonzero(line) for line in linked])
    units = np.stack([np.flatnonzero(kind == index) for kind in (rows, cols, boxes) for index in range(SIDE)])
    eye = np.eye(SIDE, dtype=np.float32)
    return neighbours, units, np.concatenate([eye[rows], eye[cols]], axis=1)


NEIGHBOURS, UNITS, POSITION = board_graph()
DEGREE = NEIGHBOURS.shape[1]
# Picking the senders with a small one-hot product keeps the backward pass free of scatters.
SENDERS = np.eye(CELLS, dtype=np.float32)[NEIGHBOURS.reshape(-1)]


def is_solved(grids):
    """Which of the filled grids [n, 36] have every digit once in each row, column and box."""
    return (np.sort(grids[:, UNITS], axis=-1) == np.arange(1, SIDE + 1)).all(axis=(1, 2))


def shuffled_lines(rng, group):
    """A random order of the six lines that keeps lines of one band together."""
    bands = rng.permutation(SIDE // group)
    return np.concatenate([band * group + rng.permutation(group) for band in bands])


def make_solutions(count, seed):
    rng = np.random.default_rng(seed)
    rows, cols = np.mgrid[:SIDE, :SIDE]
    base = (BOX_COLS * (rows % BOX_ROWS) + rows // BOX_ROWS + cols) % SIDE + 1
    grids = [base[shuffled_lines(rng, BOX_ROWS)][:, shuffled_lines(rng, BOX_COLS)] for _ in range(count)]
    return np.stack(grids).reshape(count, CELLS).astype(np.int32)


def pose(solution, rng):
    """Renames the digits of a solution and rubs out some of its cells."""
    names = np.concatenate([[0], rng.permutation(SIDE) + 1]).astype(np.int32)
    solution = names[solution]
    puzzle = solution.copy()
    puzzle[rng.permutation(CELLS)[:rng.integers(12, 21)]] = 0
    return {"puzzle": puzzle, "solution": solution}


def training_batches(solutions):
    dataset = (
        grain.MapDataset.source(solutions)
        .seed(11)
        .shuffle()
        .random_map(pose)
        .batch(BATCH, drop_remainder=True)
        .repeat()
    )
    return iter(dataset.to_iter_dataset(grain.ReadOptions(num_threads=1, prefetch_buffer_size=8)))


def posed_set(count, seed):
    rng = np.random.default_rng(seed)
    posed = [pose(solution, rng) for solution in make_solutions(count, seed)]
    return {key: np.stack([one[key] for one in posed]) for key in ("puzzle", "solution")}


class SudokuRRN(nnx.Module):
    """Logits [rounds, cells, batch, digits] for puzzles [batch, cells]; the cell axis leads throughout."""

    def __init__(self, width, readout, *, rngs):
        self.encode_in = nnx.Linear(3 * SIDE + 1, width, rngs=rngs)
        self.encode_out = nnx.Linear(width, width, rngs=rngs)
        self.send = nnx.Linear(width, width, use_bias=False, rngs=rngs)
        self.receive = nnx.Linear(width, width, rngs=rngs)
        self.message = nnx.Linear(width, width, rngs=rngs)
        self.gates = nnx.Linear(3 * width, 2 * width, rngs=rngs)
        self.candidate = nnx.Linear(3 * width, width, rngs=rngs)
        self.read_hidden = nnx.Linear(width, readout, rngs=rngs)
        self.read_digit = nnx.Linear(readout, SIDE, rngs=rngs)

    def encode(self, puzzles):
        digits = jax.nn.one_hot(puzzles.T, SIDE + 1, dtype=jnp.float32)
        place = jnp.broadcast_to(POSITION[:, None, :], (CELLS, puzzles.shape[0], 2 * SIDE))
        features = jnp.concatenate([digits, place], axis=-1)
        return self.encode_out(nnx.relu(self.encode_in(features)))

    def incoming(self, hidden):
        sent = jnp.einsum("ec,cbw->ebw", SENDERS, self.send(hidden))
        sent = sent.reshape(CELLS, DEGREE, *hidden.shape[1:])
        edges = nnx.relu(sent + self.receive(hidden)[:, None])
        return nnx.relu(self.message(edges)).mean(axis=1)

    def refresh(self, hidden, incoming, start):
        joined = jnp.concatenate([hidden, incoming, start], axis=-1)
        reset, keep = jnp.split(nnx.sigmoid(self.gates(joined)), 2, axis=-1)
        joined = jnp.concatenate([reset * hidden, incoming, start], axis=-1)
        return keep * hidden + (1.0 - keep) * jnp.tanh(self.candidate(joined))

    def __call__(self, puzzles):
        start = self.encode(puzzles)

        def one_round(hidden, _):
            hidden = self.refresh(hidden, self.incoming(hidden), start)
            return hidden, hidden

        _, trace = jax.lax.scan(one_round, start, None, length=ROUNDS)
        return self.read_digit(nnx.relu(self.read_hidden(trace)))


def build_functions(model_def, optimizer):
    def loss_fn(params, batch):
        logits = nnx.merge(model_def, params)(batch["puzzle"])
        targets = jax.nn.one_hot(batch["solution"].T - 1, SIDE, dtype=jnp.float32)
        loss = -(targets * jax.nn.log_softmax(logits)).sum(axis=-1).mean()
        blank = batch["puzzle"].T == 0
        right = (logits[-1].argmax(axis=-1) + 1 == batch["solution"].T) & blank
        return loss, {"loss": loss, "blanks_right": right.sum() / blank.sum(),
                      "puzzles_right": (right | ~blank).all(axis=0).mean()}

    def train_step(params, opt_state, batch):
        grads, metrics = jax.grad(loss_fn, has_aux=True)(params, batch)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, metrics

    def fill(params, puzzles):
        """Writes down the cells that the network is sure of, looks again, then fills in the rest."""
        model = nnx.merge(model_def, params)
        grids = puzzles
        for _ in range(PASSES - 1):
            odds = jax.nn.softmax(model(grids)[-1])
            sure = (odds.max(axis=-1).T > CONFIDENT) & (grids == 0)
            grids = jnp.where(sure, odds.argmax(axis=-1).T + 1, grids)
        return jnp.where(grids == 0, model(grids)[-1].argmax(axis=-1).T + 1, grids)

    evaluate = jax.jit(lambda params, batch: loss_fn(params, batch)[1])
    return jax.jit(train_step, donate_argnums=(0, 1)), evaluate, jax.jit(fill)


class AnswerDesk:
    """Fills in the posted puzzles with the present weights; the answers are picked up at the next visit."""

    def __init__(self, fill, post):
        self.fill = fill
        self.post = post
        self.cursor = 0
        self.pending = None
        self.answered = self.solved = 0

    def collect(self):
        if self.pending is not None:
            grids = np.asarray(self.pending)
            self.answered += len(grids)
            self.solved += int(is_solved(grids).sum())
            self.pending = None

    def serve(self, params):
        self.collect()
        asked = self.post[(self.cursor + np.arange(REQUESTS)) % len(self.post)]
        self.cursor += REQUESTS
        self.pending = self.fill(params, asked)


def save_checkpoint(path, step, params):
    leaves = jax.device_get(jax.tree.leaves(params))
    np.savez(path, step=step, **{f"leaf_{index:02d}": leaf for index, leaf in enumerate(leaves)})


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 1500
    batches = training_batches(make_solutions(8192, seed=1))
    held_out = jax.device_put(posed_set(192, seed=2))
    post = posed_set(960, seed=3)["puzzle"]

    model_def, params = nnx.split(SudokuRRN(WIDTH, READOUT, rngs=nnx.Rngs(0)))
    schedule = optax.warmup_cosine_decay_schedule(0.0, PEAK_LR, 100, max(steps + WARMUP_STEPS, 400), 1e-5)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=1e-4))
    opt_state = optimizer.init(params)
    train_step, evaluate, fill = build_functions(model_def, optimizer)
    desk = AnswerDesk(fill, post)
    print(f"{sum(leaf.size for leaf in jax.tree.leaves(params))} parameters, batches of {BATCH}")

    for _ in range(WARMUP_STEPS):
        params, opt_state, metrics = train_step(params, opt_state, next(batches))
    desk.serve(params)
    desk.collect()
    jax.block_until_ready((params, evaluate(params, held_out)))

    with tempfile.TemporaryDirectory(prefix="sudoku_rrn_") as folder:
        begin = last_log = time.perf_counter()
        for step in range(1, steps + 1):
            params, opt_state, metrics = train_step(params, opt_state, next(batches))

            if step % SERVE_EVERY == 0:
                desk.serve(params)

            if step % LOG_EVERY == 0:
                loss, right = float(metrics["loss"]), float(metrics["blanks_right"])
                previous, last_log = last_log, time.perf_counter()
                rate = LOG_EVERY * BATCH / (last_log - previous)
                print(f"step {step:5d}  loss {loss:.4f}  blanks right {right:.3f}  {rate:.0f} puzzles/s  "
                      f"desk {desk.solved}/{desk.answered} solved", flush=True)

            if step % EVAL_EVERY == 0:
                scores = jax.device_get(evaluate(params, held_out))
                print(f"  held out: loss {scores['loss']:.4f}  blanks {scores['blanks_right']:.3f}  "
                      f"puzzles {scores['puzzles_right']:.3f}", flush=True)

            if step % SAVE_EVERY == 0:
                save_checkpoint(os.path.join(folder, f"step_{step:06d}.npz"), step, params)

        desk.collect()
        jax.block_until_ready(params)
        seconds = time.perf_counter() - begin

    print(f"done {steps} steps in {seconds:.3f} s")


if __name__ == "__main__":
    main()
