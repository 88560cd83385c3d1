"""A small AlphaZero for 5x5 Hex: batched self-play with tree search in numpy, network and training in flax nnx.

Boards are always seen by the player to move, who joins top to bottom; after a move the board is transposed and the
colours swap. The games run in two groups, so that one group's trees are walked while the other's leaves are evaluated.
"""
import multiprocessing
import os
import queue
import sys
import tempfile
import time
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx


@dataclass(frozen=True)
class Config:
    board: int = 5
    groups: int = 2
    games: int = 48                 # a group
    simulations: int = 8
    cpuct: float = 1.5
    noise: float = 0.25
    sampled_plies: int = 6
    channels: int = 32
    blocks: int = 2
    batch: int = 64
    update_rounds: tuple = (1, 5)   # rounds of a move after which a gradient update is sent off
    learning_rate: float = 2e-3
    capacity: int = 20_000
    min_positions: int = 1_000
    refresh_every: int = 5
    log_every: int = 100
    evaluate_every: int = 400
    checkpoint_every: int = 500
    archive_workers: int = 1
    archive_shard: int = 256


def connects(own):
    """For each board (G, n, n): do these stones join the top row to the bottom row?"""
    g, n, _ = own.shape
    reach = np.zeros((g, n + 2, n + 2), bool)
    reach[:, 1, 1:-1] = own[:, 0]
    while True:
        centre = reach[:, 1:-1, 1:-1]
        grown = (centre | reach[:, :-2, 1:-1] | reach[:, 2:, 1:-1] | reach[:, 1:-1, :-2] | reach[:, 1:-1, 2:]
                 | reach[:, :-2, 2:] | reach[:, 2:, :-2])
        grown &= own
        if np.array_equal(grown, centre):
            return grown[:, -1].any(axis=1)
        reach[:, 1:-1, 1:-1] = grown


class ResBlock(nnx.Module):
    def __init__(self, channels, rngs):
        self.norm = nnx.LayerNorm(channels, rngs=rngs)
        self.conv = nnx.Conv(channels, channels, (3, 3), rngs=rngs)

    def __call__(self, x):
        return x + self.conv(nnx.relu(self.norm(x)))


class HexNet(nnx.Module):
    def __init__(self, cfg: Config, rngs):
        cells = cfg.board * cfg.board
        self.stem = nnx.Conv(3, cfg.channels, (3, 3), rngs=rngs)
        self.blocks = nnx.List([ResBlock(cfg.channels, rngs) for _ in range(cfg.blocks)])
        self.norm = nnx.LayerNorm(cfg.channels, rngs=rngs)
        self.policy_conv = nnx.Conv(cfg.channels, 4, (1, 1), rngs=rngs)
        self.policy_out = nnx.Linear(4 * cells, cells, rngs=rngs)
        self.value_conv = nnx.Conv(cfg.channels, 2, (1, 1), rngs=rngs)
        self.value_hidden = nnx.Linear(2 * cells, 32, rngs=rngs)
        self.value_out = nnx.Linear(32, 1, rngs=rngs)

    def __call__(self, boards):
        stones = jnp.asarray(boards, jnp.float32)
        x = jnp.concatenate([stones, 1.0 - stones.sum(-1, keepdims=True)], axis=-1)
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        x = nnx.relu(self.norm(x))
        batch = x.shape[0]
        logits = self.policy_out(nnx.relu(self.policy_conv(x)).reshape(batch, -1))
        hidden = nnx.relu(self.value_hidden(nnx.relu(self.value_conv(x)).reshape(batch, -1)))
        return logits, jnp.tanh(self.value_out(hidden))[:, 0]


@nnx.jit(donate_argnums=(0, 1))
def train_step(model, optimizer, boards, policy, outcome):
    def loss_fn(model):
        logits, value = model(boards)
        policy_loss = optax.softmax_cross_entropy(logits, policy).mean()
        value_loss = jnp.square(value - outcome).mean()
        return policy_loss + value_loss, (policy_loss, value_loss)

    (loss, (policy_loss, value_loss)), grads = nnx.value_and_grad(loss_fn, has_aux=True)(model)
    optimizer.update(model, grads)
    return {"loss": loss, "policy": policy_loss, "value": value_loss}


class Evaluator:
    """The actors' copy of the network, refreshed from the learner now and then."""

    def __init__(self, model):
        self.graphdef, _ = nnx.split(model)
        self._copy = jax.jit(lambda state: jax.tree.map(jnp.copy, state))
        self._forward = jax.jit(self._apply)
        self.refresh(model)

    def refresh(self, model):
        self.state = self._copy(nnx.state(model))

    def _apply(self, state, boards):
        return nnx.merge(self.graphdef, state)(boards)

    def submit(self, boards):
        return self._forward(self.state, boards)

    def collect(self, ticket):
        logits, value = ticket
        return np.asarray(logits), np.asarray(value)


class Replay:
    def __init__(self, cfg: Config, rng):
        n = cfg.board
        self.boards = np.zeros((cfg.capacity, n, n, 2), bool)
        self.policy = np.zeros((cfg.capacity, n * n), np.float32)
        self.outcome = np.zeros(cfg.capacity, np.float32)
        self.capacity, self.rng, self.head, self.size = cfg.capacity, rng, 0, 0

    def add(self, boards, policy, outcome):
        slots = (self.head + np.arange(len(outcome))) % self.capacity
        self.boards[slots], self.policy[slots], self.outcome[slots] = boards, policy, outcome
        self.head = (self.head + len(slots)) % self.capacity
        self.size = min(self.size + len(slots), self.capacity)

    def sample(self, count):
        picked = self.rng.integers(0, self.size, count)
        boards, policy = self.boards[picked], self.policy[picked]
        half = count // 2           # a Hex position turned by 180 degrees is the same position
        boards[:half] = boards[:half, ::-1, ::-1].copy()
        policy[:half] = policy[:half, ::-1].copy()
        return boards, policy, self.outcome[picked]


def archive_worker(jobs, folder, parent):
    shard = 0
    while os.getppid() == parent:
        try:
            games = jobs.get(timeout=2.0)
        except queue.Empty:
            continue
        if games is None:
            break
        np.savez_compressed(os.path.join(folder, f"games-{os.getpid()}-{shard:05d}.npz"),
                            moves=np.concatenate(games), lengths=np.array([len(game) for game in games]))
        shard += 1


class Archive:
    """Keeps the records of all finished games; compressing and writing is done outside of this process."""

    def __init__(self, cfg: Config, folder):
        context = multiprocessing.get_context("fork")    # before JAX starts its threads
        self.shard, self.games, self.jobs = cfg.archive_shard, [], context.Queue()
        self.workers = [context.Process(target=archive_worker, args=(self.jobs, folder, os.getpid()), daemon=True)
                        for _ in range(cfg.archive_workers)]
        for worker in self.workers:
            worker.start()

    def add(self, moves):
        self.games.append(moves)
        if len(self.games) >= self.shard:
            self.jobs.put(self.games)
            self.games = []

    def close(self):
        for _ in self.workers:
            self.jobs.put(None)
        for worker in self.workers:
            worker.join(timeout=5.0)


class GameGroup:
    """Games that search in lockstep: node k of every tree belongs to simulation k, node 0 is the root."""

    def __init__(self, cfg: Config, evaluator, replay, archive, rng):
        self.cfg, self.evaluator, self.replay, self.archive, self.rng = cfg, evaluator, replay, archive, rng
        g, n, cells, nodes = cfg.games, cfg.board, cfg.board ** 2, cfg.simulations + 1
        self.rows, self.nodes = np.arange(g), nodes
        self.own, self.opp = np.zeros((g, nodes, n, n), bool), np.zeros((g, nodes, n, n), bool)
        self.legal, self.terminal = np.zeros((g, nodes, cells), bool), np.zeros((g, nodes), bool)
        self.prior, self.visits, self.total = (np.zeros((g, nodes, cells), np.float32) for _ in range(3))
        self.child = np.full((g, nodes, cells), -1, np.int64)
        self.ply, self.finished = np.zeros(g, np.int64), 0
        self.past_boards = np.zeros((g, cells, n, n, 2), bool)
        self.past_policy = np.zeros((g, cells, cells), np.float32)
        self.past_moves = np.zeros((g, cells), np.int8)
        self._plant(self.own[:, 0].copy(), self.opp[:, 0].copy())
        self._request()

    def advance(self):
        self._absorb(*self.evaluator.collect(self.ticket))
        if self.used == self.nodes:
            self._play()
        else:
            self._descend()
        self._request()

    def _plant(self, own, opp):
        self.visits.fill(0.0)
        self.total.fill(0.0)
        self.child.fill(-1)
        self.terminal.fill(False)
        self.own[:, 0], self.opp[:, 0] = own, opp
        self.legal[:, 0] = ~(own | opp).reshape(len(own), -1)
        self.leaf, self.path, self.used = np.zeros_like(self.rows), [], 1

    def _request(self):
        boards = np.stack([self.own[self.rows, self.leaf], self.opp[self.rows, self.leaf]], axis=-1)
        self.ticket = self.evaluator.submit(boards)

    def _absorb(self, logits, value):
        rows, legal = self.rows, self.legal[self.rows, self.leaf]
        prior = np.where(legal, np.exp(logits - logits.max(axis=1, keepdims=True)), 0.0) + 1e-6 * legal
        prior /= np.maximum(prior.sum(axis=1, keepdims=True), 1e-9)
        if not self.path:
            noise = self.rng.dirichlet(np.full(legal.shape[1], 0.6), len(rows)) * legal
            prior = (1 - self.cfg.noise) * prior + self.cfg.noise * noise / (noise.sum(axis=1, keepdims=True) + 1e-9)
        self.prior[rows, self.leaf] = prior
        value = np.where(self.terminal[rows, self.leaf], -1.0, value)
        for node, move, walked in reversed(self.path):
            value = np.where(walked, -value, value)
            row, node, move = rows[walked], node[walked], move[walked]
            self.total[row, node, move] += value[walked]
            self.visits[row, node, move] += 1.0

    def _descend(self):
        rows, new = self.rows, self.used
        node, walking = np.zeros_like(rows), np.ones(len(rows), bool)
        opened, from_node, from_move = np.zeros(len(rows), bool), np.zeros_like(rows), np.zeros_like(rows)
        self.path = []
        while walking.any():
            visits = self.visits[rows, node]
            mean = self.total[rows, node] / np.maximum(visits, 1.0)
            bonus = self.prior[rows, node] * np.sqrt(visits.sum(axis=1, keepdims=True) + 1.0) / (1.0 + visits)
            score = np.where(self.legal[rows, node], mean + self.cfg.cpuct * bonus, -np.inf)
            move = score.argmax(axis=1)
            self.path.append((node, move, walking))
            below = self.child[rows, node, move]
            fresh = walking & (below < 0)
            opened |= fresh
            from_node, from_move = np.where(fresh, node, from_node), np.where(fresh, move, from_move)
            node = np.where(walking, np.where(below < 0, new, below), node)
            walking = walking & ~fresh & ~self.terminal[rows, node]
        row, node_up, move = rows[opened], from_node[opened], from_move[opened]
        own, opp = self.own[row, node_up], self.opp[row, node_up]
        own[np.arange(len(row)), move // self.cfg.board, move % self.cfg.board] = True
        self.terminal[row, new] = connects(own)
        self.own[row, new], self.opp[row, new] = opp.transpose(0, 2, 1), own.transpose(0, 2, 1)
        self.legal[row, new] = ~(self.own[row, new] | self.opp[row, new]).reshape(len(row), -1)
        self.child[row, node_up, move] = new
        self.leaf, self.used = node, new + 1

    def _play(self):
        rows, n, counts = self.rows, self.cfg.board, self.visits[:, 0]
        heat = self.rng.gumbel(size=counts.shape) * (self.ply < self.cfg.sampled_plies)[:, None]
        move = np.where(counts > 0, np.log(np.maximum(counts, 1.0)) + heat, -np.inf).argmax(axis=1)
        own, opp = self.own[:, 0].copy(), self.opp[:, 0].copy()
        self.past_boards[rows, self.ply] = np.stack([own, opp], axis=-1)
        self.past_policy[rows, self.ply] = counts / counts.sum(axis=1, keepdims=True)
        self.past_moves[rows, self.ply] = move
        own[rows, move // n, move % n] = True
        won = connects(own)
        for game in np.flatnonzero(won):
            length = self.ply[game] + 1
            outcome = 1.0 - 2.0 * ((length - 1 - np.arange(length)) % 2)
            self.replay.add(self.past_boards[game, :length], self.past_policy[game, :length], outcome)
            self.archive.add(self.past_moves[game, :length].copy())
        self.finished += int(won.sum())
        self.ply = np.where(won, 0, self.ply + 1)
        going = ~won[:, None, None]
        self._plant(opp.transpose(0, 2, 1) & going, own.transpose(0, 2, 1) & going)


class Trainer:
    def __init__(self, cfg: Config, steps, archive, folder):
        self.cfg, self.folder, self.rng = cfg, folder, np.random.default_rng(7)
        self.model = HexNet(cfg, nnx.Rngs(0))
        updates = max(steps * len(cfg.update_rounds), 400)
        schedule = optax.warmup_cosine_decay_schedule(0.0, cfg.learning_rate, 100, updates, cfg.learning_rate * 0.05)
        tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=1e-4))
        self.optimizer = nnx.Optimizer(self.model, tx, wrt=nnx.Param)
        self.evaluator = Evaluator(self.model)
        self.replay = Replay(cfg, self.rng)
        self.groups = [GameGroup(cfg, self.evaluator, self.replay, archive, np.random.default_rng(100 + i))
                       for i in range(cfg.groups)]
        self.metrics = {}

    def iteration(self, learn=True):
        """One move in every game, with the gradient updates queued between the rounds of the search."""
        for turn in range(self.cfg.simulations + 1):
            for group in self.groups:
                group.advance()
            if learn and turn in self.cfg.update_rounds:
                self.update(self.replay.sample(self.cfg.batch))

    def update(self, batch):
        self.metrics = train_step(self.model, self.optimizer, *batch)

    def versus_random(self):
        """Share of games that the bare policy wins against random moves; it begins in every second game."""
        g, n = self.cfg.games, self.cfg.board
        rows, own, opp = np.arange(g), np.zeros((g, n, n), bool), np.zeros((g, n, n), bool)
        open_games, wins = np.ones(g, bool), 0
        for ply in range(n * n):
            logits, _ = self.evaluator.collect(self.evaluator.submit(np.stack([own, opp], axis=-1)))
            ours = (rows + ply) % 2 == 0
            wish = np.where(ours[:, None], logits, self.rng.random(logits.shape))
            move = np.where((own | opp).reshape(g, -1), -np.inf, wish).argmax(axis=1)
            own[rows, move // n, move % n] = True
            won = connects(own) & open_games
            wins += int((won & ours).sum())
            open_games &= ~won
            if not open_games.any():
                break
            own, opp = opp.transpose(0, 2, 1), own.transpose(0, 2, 1)
        return wins / g

    def checkpoint(self, step):
        leaves = jax.tree.leaves(jax.device_get(nnx.state(self.model)))
        np.savez(os.path.join(self.folder, "model.npz"), step=step, **{f"p{i}": leaf for i, leaf in enumerate(leaves)})

    def wait(self):
        jax.block_until_ready((nnx.state(self.model), self.metrics, [group.ticket for group in self.groups]))

    def run(self, steps, warmup=20):
        while self.replay.size < self.cfg.min_positions:
            self.iteration(learn=False)
        for _ in range(warmup):
            self.iteration()
        self.evaluator.refresh(self.model)
        print(f"warm: {self.replay.size} positions, {self.versus_random():.2f} against random", flush=True)
        self.wait()
        start = time.perf_counter()
        for step in range(1, steps + 1):
            self.iteration()
            if step % self.cfg.refresh_every == 0:
                self.evaluator.refresh(self.model)
            if step % self.cfg.log_every == 0:
                shown = " ".join(f"{name} {float(value):.3f}" for name, value in self.metrics.items())
                games = sum(group.finished for group in self.groups)
                print(f"step {step} {shown} games {games} {time.perf_counter() - start:.1f} s", flush=True)
            if step % self.cfg.evaluate_every == 0:
                print(f"step {step} wins against random {self.versus_random():.2f}", flush=True)
            if step % self.cfg.checkpoint_every == 0:
                self.checkpoint(step)
        self.wait()
        return time.perf_counter() - start


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    cfg = Config()
    with tempfile.TemporaryDirectory(prefix="hex_") as folder:
        archive = Archive(cfg, folder)
        seconds = Trainer(cfg, steps, archive, folder).run(steps)
        archive.close()
    print(f"done {steps} steps in {seconds:.3f} s", flush=True)


if __name__ == "__main__":
    main()
