import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt
import pytest

from perfdoctor.schema.workload import Data, Inference, Model, Training, Workload
from perfdoctor.targets.reference.generate import write
from perfdoctor.targets.reference.serving import Batcher, Serving

EXAMPLES = 20
LIMIT_S = 60.0
"""Generous: reached only where something is wrong."""
Name = Literal["mlp", "cnn", "lstm", "transformer"]


def workload(name: Name = "mlp", clients: int = 3, batched: bool = False) -> Workload:
    return Workload(
        model=Model(name=name, width=4, depth=1, dropout=0.5),
        data=Data(source="memory", examples=EXAMPLES, image_size=8, sequence_length=4),
        training=Training(steps=10),
        inference=Inference(clients=clients, batched=batched),
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data set of images and that of tokens, of tiny sizes."""
    found = tmp_path_factory.mktemp("data")
    write(workload(), found)
    write(workload("lstm"), found)
    return found


class Noted(Serving):
    """Keeps what was asked and answered."""

    def __init__(self, workload: Workload, folder: Path) -> None:
        super().__init__(workload, folder)
        self.noted: list[tuple[bytes, npt.NDArray[Any]]] = []
        self.threads: set[int] = set()

    def answer(self, inputs: npt.NDArray[Any]) -> npt.NDArray[Any]:
        found = super().answer(inputs)
        self.noted.append((inputs.tobytes(), found.reshape(-1)))
        self.threads.add(threading.get_ident())
        return found


def served(workload: Workload, folder: Path, requests: int) -> Noted:
    """After so many requests, closed."""
    serving = Noted(workload, folder)
    serving.run(requests)
    serving.wait()
    serving.close()
    return serving


def alone(folder: Path, name: Name) -> dict[bytes, npt.NDArray[Any]]:
    """By the bytes of an example: what one client is answered."""
    return dict(served(workload(name, clients=1), folder, EXAMPLES).noted)


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("name", ["mlp", "transformer"])
def test_every_request_gets_its_own_prediction(folder: Path, name: Name, batched: bool) -> None:
    expected = alone(folder, name)
    noted = served(workload(name, clients=4, batched=batched), folder, 3 * EXAMPLES).noted
    for inputs, answer in noted:
        np.testing.assert_allclose(answer, expected[inputs], rtol=1e-4, atol=1e-5)


def test_predictions_differ_from_example_to_example(folder: Path) -> None:
    answers = {answer.tobytes() for answer in alone(folder, "mlp").values()}
    assert len(answers) > EXAMPLES / 2


def test_serving_drops_nothing_out(folder: Path) -> None:
    first, second = alone(folder, "mlp"), alone(folder, "mlp")
    for inputs, answer in first.items():
        np.testing.assert_array_equal(answer, second[inputs])


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("requests", [0, 1, 2, 57])
def test_all_requests_are_answered_exactly_once(folder: Path, requests: int, batched: bool) -> None:
    asked = Counter(
        inputs for inputs, _ in served(workload(batched=batched), folder, requests).noted
    )
    assert asked.total() == requests
    every, more = divmod(requests, EXAMPLES)
    assert sorted(asked.values()) == sorted(
        [every + 1] * more + [every] * (EXAMPLES - more if every else 0)
    )


def test_it_can_be_run_again(folder: Path) -> None:
    serving = Noted(workload(batched=True), folder)
    for requests in (5, 7):
        serving.run(requests)
    serving.close()
    assert len(serving.noted) == 12


def test_the_clients_are_threads(folder: Path) -> None:
    serving = served(workload(clients=3), folder, 300)
    assert 1 <= len(serving.threads) <= 3
    assert threading.get_ident() not in serving.threads


@pytest.mark.parametrize("batched", [True, False])
def test_when_it_is_closed_no_thread_is_left(folder: Path, batched: bool) -> None:
    before = set(threading.enumerate())
    serving = served(workload(batched=batched), folder, 10)
    assert set(threading.enumerate()) <= before
    serving.close()


def test_a_closed_one_is_asked_nothing_more(folder: Path) -> None:
    serving = served(workload(), folder, 2)
    serving.run(10)
    assert len(serving.noted) == 2


def doubled(inputs: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return 2 * inputs


def ask_together(batcher: Batcher, count: int) -> dict[int, int]:
    """Each of so many threads asks once: what it asked, and its answer."""
    answers: dict[int, int] = {}

    def ask(number: int) -> None:
        answers[number] = int(batcher.ask(np.asarray([number]))[()])

    threads = [threading.Thread(target=ask, args=[number]) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def test_a_batch_always_has_the_same_size() -> None:
    sizes: list[int] = []

    def predict(inputs: npt.NDArray[Any]) -> npt.NDArray[Any]:
        sizes.append(len(inputs))
        return doubled(inputs)

    batcher = Batcher(predict, 4)
    assert ask_together(batcher, 10) == {number: 2 * number for number in range(10)}
    batcher.close()
    assert set(sizes) == {4}
    assert len(sizes) <= 10


def test_requests_that_wait_together_share_a_call() -> None:
    calls: list[list[int]] = []
    first = threading.Event()

    def predict(inputs: npt.NDArray[Any]) -> npt.NDArray[Any]:
        calls.append(inputs.tolist())
        if len(calls) == 1:
            first.wait(LIMIT_S)
        return doubled(inputs)

    batcher = Batcher(predict, 8)
    threads = [threading.Thread(target=batcher.ask, args=[np.asarray([n])]) for n in range(6)]
    threads[0].start()
    while not calls:
        time.sleep(0.001)
    for thread in threads[1:]:
        thread.start()
    while batcher.requests.qsize() < 5:
        time.sleep(0.001)
    first.set()
    for thread in threads:
        thread.join()
    batcher.close()
    assert len(calls) == 2
    assert set(calls[1]) == {1, 2, 3, 4, 5}


def test_a_closed_batcher_answers_nobody_and_hangs_nobody() -> None:
    batcher = Batcher(doubled, 2)
    batcher.close()
    with pytest.raises(CancelledError):
        batcher.ask(np.asarray([1]))


INTERRUPTED = """
import sys, threading, time
from pathlib import Path
import msgspec
from perfdoctor.schema.workload import Workload
from perfdoctor.targets.reference.serving import Serving

serving = Serving(msgspec.json.decode(sys.argv[1], type=Workload), Path(sys.argv[2]))
serving.run(1)
first, answered = threading.Lock(), serving.answer

def answer(inputs):
    found = answered(inputs)
    if first.acquire(blocking=False):
        print("runs", flush=True)
    return found

serving.answer = answer
try:
    serving.run(10**9)
except KeyboardInterrupt:
    serving.close()
    while threading.active_count() > 1:
        time.sleep(0.01)
    print("ends")
"""


@pytest.mark.parametrize("batched", [True, False])
def test_an_interruption_ends_all_threads(folder: Path, batched: bool) -> None:
    spec = msgspec.json.encode(workload(batched=batched)).decode()
    command = [sys.executable, "-c", INTERRUPTED, spec, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "runs\n"
            child.send_signal(signal.SIGINT)
            out, _ = child.communicate(timeout=LIMIT_S)
        finally:
            child.kill()
    assert (child.returncode, out) == (0, "ends\n")


def broken(inputs: Any) -> Any:
    raise ValueError("no such model")


@pytest.mark.parametrize("batched", [True, False])
def test_a_model_that_fails_ends_the_run(folder: Path, batched: bool) -> None:
    serving = Noted(workload(batched=batched), folder)
    serving.predict = broken
    if serving.batcher is not None:
        serving.batcher.predict = broken
    with pytest.raises(ValueError, match="no such model"):
        serving.run(10**9)
    serving.close()
    assert serving.noted == []


def test_a_model_that_fails_once_does_not_end_the_batcher() -> None:
    failures = iter([ValueError("not now")])

    def predict(inputs: npt.NDArray[Any]) -> npt.NDArray[Any]:
        for failure in failures:
            raise failure
        return doubled(inputs)

    batcher = Batcher(predict, 1)
    with pytest.raises(ValueError, match="not now"):
        batcher.ask(np.asarray([1]))
    assert batcher.ask(np.asarray([2])) == 4
    batcher.close()


def test_each_request_of_a_run_is_asked_once(folder: Path) -> None:
    serving = Noted(workload(batched=True), folder)
    serving.run_each([3, 5, 3])
    serving.close()
    assert sorted(Counter(inputs for inputs, _ in serving.noted).values()) == [1, 2]


def test_the_program_serves_until_its_steps_are_done(folder: Path) -> None:
    (folder / "serve.json").write_bytes(msgspec.json.encode(workload(batched=True)))
    command = [sys.executable, "-m", "perfdoctor.targets.reference"]
    done = subprocess.run(
        [*command, str(folder / "serve.json"), str(folder)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=True,
    )
    assert done.stdout == ""
