"""Serving the model of a workload: client threads that each ask for one prediction after another.

Nothing in here observes or measures, as in the training loop.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
import numpy.typing as npt

from perfdoctor.schema.workload import Workload
from perfdoctor.targets.reference.data import examples_of
from perfdoctor.targets.reference.loop import ARITHMETIC, cast
from perfdoctor.targets.reference.models import MODELS

Example = npt.NDArray[np.generic]
Answer = npt.NDArray[np.generic]
POLL_S = 0.1
"""How often a waiting thread looks whether it should end."""
FILL_S = 0.002
"""How long a request waits at most for others to share its call."""


class Serving:
    """Clients of one model; a step is one request."""

    examples_per_step = 1

    def __init__(self, workload: Workload, folder: Path) -> None:
        if workload.training.dtype == "float64":
            jax.config.update("jax_enable_x64", True)
        self.clients = workload.inference.clients
        self.examples = examples_of(workload, folder)
        self.predict = predictor(workload)
        self.ended = threading.Event()
        self.batcher = Batcher(self.predict, self.clients) if workload.inference.batched else None

    def run(self, requests: int) -> None:
        """Have the clients ask so many times, together."""
        self.run_each(range(requests))

    def run_each(self, requests: Iterable[int]) -> None:
        """Have the clients ask once for each number, together."""
        left = iter(requests)
        lock = threading.Lock()

        def client() -> None:
            try:
                while not self.ended.is_set():
                    with lock:
                        request = next(left, None)
                    if request is None:
                        return
                    inputs, _ = self.examples.read(np.asarray([request % len(self.examples)]))
                    self.answer(inputs)
            except BaseException:
                self.ended.set()
                raise

        with ThreadPoolExecutor(self.clients) as pool:
            try:
                clients = [pool.submit(client) for _ in range(self.clients)]
                while wait(clients, POLL_S).not_done:  # one endless wait might miss a signal
                    pass
                for each in clients:
                    each.result()
            except BaseException:
                self.ended.set()
                raise

    def answer(self, inputs: Example) -> Answer:
        """The prediction for one example, inputs [1, ...]."""
        if self.batcher is not None:
            return self.batcher.ask(inputs)
        return np.asarray(self.predict(inputs))

    def wait(self) -> None:
        """A request is answered when its client goes on: there is nothing left to wait for."""

    def close(self) -> None:
        """Let all threads end."""
        self.ended.set()
        if self.batcher is not None:
            self.batcher.close()


class Batcher:
    """Computes the requests that wait together, in one call of the model."""

    def __init__(self, predict: Callable[[Example], Any], size: int) -> None:
        self.predict = predict
        self.size = size
        self.requests: queue.SimpleQueue[tuple[Example, Future[Answer]]] = queue.SimpleQueue()
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def ask(self, inputs: Example) -> Answer:
        """Wait for the answer to one request; CancelledError if the batcher is closed before."""
        future: Future[Answer] = Future()
        self.requests.put((inputs, future))
        while self.thread.is_alive():
            with suppress(TimeoutError):
                return future.result(POLL_S)
        raise CancelledError

    def serve(self) -> None:
        """Answer until closed; a batch is filled up to one size, so that one program does."""
        while not self.ended.is_set():
            try:
                waiting = [self.requests.get(timeout=POLL_S)]
            except queue.Empty:
                continue
            until = time.monotonic() + FILL_S
            with suppress(queue.Empty):
                while len(waiting) < self.size:
                    waiting.append(self.requests.get(timeout=max(0, until - time.monotonic())))
            inputs = [inputs for inputs, _ in waiting]
            inputs += inputs[:1] * (self.size - len(inputs))
            try:
                answers = np.asarray(self.predict(np.concatenate(inputs)))
            except Exception as error:  # of the model; each client ends with it
                for _, future in waiting:
                    future.set_exception(error)
                continue
            for (_, future), answer in zip(waiting, answers, strict=False):
                future.set_result(answer)

    def close(self) -> None:
        """End the thread when it has answered what it holds."""
        self.ended.set()
        self.thread.join()


def predictor(workload: Workload) -> Callable[[Example], Any]:
    """The model of a workload as a jitted function of inputs [batch, ...]."""
    key = jax.random.key(workload.training.seed)
    model = eqx.nn.inference_mode(MODELS[workload.model.name](workload, key))
    params, static = eqx.partition(model, eqx.is_inexact_array)
    params = cast(params, ARITHMETIC[workload.training.dtype])

    def predict(params: Any, inputs: Any) -> Any:
        return jax.vmap(lambda example: eqx.combine(params, static)(example, key))(inputs)

    return partial(jax.jit(predict), params)
