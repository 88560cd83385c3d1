"""Classifies feature vectors for clients that ask for one at a time.

The requests are replayed from a file, over and over; some hundreds are open at any time.
"""

import argparse
import queue
import threading
import time
from collections import deque
from concurrent.futures import Future
from itertools import pairwise
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

FEATURES, HIDDEN, CLASSES = 512, 1536, 6
OPEN_REQUESTS = 256

Request = tuple[np.ndarray, Future]


def recorded(file: Path, count: int = 4096) -> np.ndarray:
    """What the clients ask about."""
    if not file.exists():
        file.parent.mkdir(exist_ok=True)
        rng = np.random.default_rng(9)
        np.save(file, rng.normal(size=(count, FEATURES)).astype(np.float32))
    return np.load(file)


def load_model(seed: int) -> list[jax.Array]:
    """The weights of four layers."""
    sizes = [FEATURES, HIDDEN, HIDDEN, HIDDEN, CLASSES]
    keys = jax.random.split(jax.random.key(seed), len(sizes) - 1)
    he = jax.nn.initializers.he_normal()
    return [he(key, shape) for key, shape in zip(keys, pairwise(sizes), strict=True)]


@jax.jit
def classify(weights: list[jax.Array], examples: jax.Array) -> jax.Array:
    """The most likely class of each example."""
    x = examples
    for layer in weights[:-1]:
        x = jax.nn.relu(x @ layer)
    return jnp.argmax(x @ weights[-1], axis=-1)


class Server:
    """Workers take what waits, up to a batch, and compute it; each is one batch ahead."""

    def __init__(self, weights: list[jax.Array], batch_size: int, workers: int) -> None:
        self.weights, self.batch_size = weights, batch_size
        self.waiting: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self.workers = [threading.Thread(target=self.work, daemon=True) for _ in range(workers)]
        for worker in self.workers:
            worker.start()

    def submit(self, example: np.ndarray) -> Future:
        answer: Future = Future()
        self.waiting.put((example, answer))
        return answer

    def take(self, patient: bool) -> tuple[list[Request], bool]:
        """What waits, at most a batch, and whether the end was reached."""
        taken: list[Request] = []
        while len(taken) < self.batch_size:
            try:
                request = self.waiting.get(block=patient and not taken)
            except queue.Empty:
                break
            if request is None:
                self.waiting.put(None)  # for the other workers
                return taken, True
            taken.append(request)
        return taken, False

    def work(self) -> None:
        computing: tuple[jax.Array, list[Future]] | None = None
        closed = False
        while not closed or computing is not None:
            taken, closed = self.take(patient=computing is None)
            following = None
            if taken:
                batch = np.zeros((self.batch_size, FEATURES), np.float32)
                np.stack([example for example, _ in taken], out=batch[: len(taken)])
                following = classify(self.weights, batch), [answer for _, answer in taken]
            if computing is not None:
                labels, answers = np.asarray(computing[0]), computing[1]
                for label, answer in zip(labels.tolist(), answers, strict=False):
                    answer.set_result(label)
            computing = following

    def close(self) -> None:
        self.waiting.put(None)
        for worker in self.workers:
            worker.join()


def ask_all(server: Server, examples: np.ndarray) -> list[int]:
    """Ask about each example, with so many requests open."""
    labels, open_requests = [], deque()
    for example in examples:
        if len(open_requests) == OPEN_REQUESTS:
            labels.append(open_requests.popleft().result())
        open_requests.append(server.submit(example))
    return labels + [answer.result() for answer in open_requests]


def main() -> None:
    """Serve, and report after each round through the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=1000, help="rounds through the file")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    examples = recorded(Path("data/requests.npy"))
    server = Server(load_model(args.seed), args.batch_size, args.workers)
    for epoch in range(args.epochs):
        start = time.perf_counter()
        labels = ask_all(server, examples)
        rate = len(labels) / (time.perf_counter() - start)
        counts = np.bincount(labels, minlength=CLASSES).tolist()
        print(f"round {epoch}: classes {counts}, {rate:.1f} examples/s", flush=True)
    server.close()
    np.savez("result.npz", labels=labels)


if __name__ == "__main__":
    main()
