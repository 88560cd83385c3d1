"""The listener in loops of all kinds."""

import asyncio
import gc
import logging
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest
from jax._src import monitoring

from perfdoctor import PerformanceListener
from perfdoctor.listener.line import Line

BATCH = np.zeros((4, 2))


def listened(**options: Any) -> tuple[PerformanceListener, list[Line]]:
    """A listener that tells a list."""
    lines: list[Line] = []
    return PerformanceListener(callback=lines.append, **options), lines


def hooks() -> tuple[int, int]:
    """Of the process."""
    return len(gc.callbacks), len(monitoring.get_event_duration_listeners())


def test_a_line_every_so_many_iterations() -> None:
    listener, lines = listened(batch_size=4, every=3)
    with listener:
        for n, _ in enumerate(listener.batches([BATCH] * 7), 1):
            listener.step(score=n / 10)
    assert [line.iteration for line in lines] == [3, 6]
    assert [line.iterations for line in lines] == [3, 3]
    assert [line.score for line in lines] == [0.3, 0.6]
    for line in lines:
        assert line.samples_per_s == pytest.approx(4 * line.batches_per_s)
        assert line.batches_per_s == pytest.approx(1e3 / line.iteration_ms)
        assert 0 <= line.etl_ms <= line.iteration_ms


def test_the_wait_for_data_is_told_apart() -> None:
    def slow() -> Any:
        for _ in range(4):
            time.sleep(0.02)
            yield BATCH

    listener, lines = listened(every=4)
    with listener:
        for _ in listener.batches(slow()):
            time.sleep(0.01)
            listener.step()
    assert lines[0].etl_ms >= 20
    assert lines[0].iteration_ms - lines[0].etl_ms >= 10
    assert lines[0].samples_per_s == pytest.approx(4 * lines[0].batches_per_s)  # by the batch


def test_without_batches_the_first_step_begins_the_clock() -> None:
    listener, lines = listened(every=2)
    with listener:
        time.sleep(0.05)
        for _ in range(2):
            listener.step()
    assert lines[0].iterations == 1 and lines[0].iteration_ms < 50


class Score:
    """A score that is never computed, unless someone waits for it."""

    def __init__(self) -> None:
        self.waited = 0

    def is_ready(self) -> bool:
        return self.waited > 0

    def __float__(self) -> float:
        self.waited += 1
        return 1.5


def test_only_the_score_that_is_told_is_read() -> None:
    scores = [Score() for _ in range(6)]
    listener, lines = listened(every=3)
    with listener:
        for score, _ in zip(scores, listener.batches([BATCH] * 6), strict=False):
            listener.step(score=score)
    assert [score.waited for score in scores] == [0, 0, 1, 0, 0, 1]
    assert lines[0].score == 1.5


def test_a_step_does_not_wait_for_the_device() -> None:
    def repeated(x: Any, times: Any) -> Any:
        return jax.lax.fori_loop(0, times, lambda _, c: jnp.tanh(c @ x), x).sum()

    compute = jax.jit(repeated)
    x = jnp.ones((400, 400)) / 400
    compute(x, 1).block_until_ready()
    listener, lines = listened(every=1000)
    with listener:
        loss = compute(x, 1000)
        for _ in listener.batches([BATCH] * 100):
            listener.step(score=loss)
        assert not loss.is_ready()  # a hundred steps were told of it, and none has waited
    assert jnp.isfinite(loss) and not lines


def test_collections_and_compilations_since_the_last_line() -> None:
    listener, lines = listened(every=1)
    with listener:
        listener.step()
        step = jax.jit(lambda x: x * 3 + 1)
        step(1.0)
        gc.collect()
        listener.step()
        listener.step()
    first, second = lines
    assert first.compiles >= 1
    assert any(each.generation == 2 and each.count >= 1 for each in first.collections)
    assert second.compiles == 0
    assert not any(each.generation == 2 for each in second.collections)


def test_evaluations_are_left_out() -> None:
    listener, lines = listened(every=2)
    with listener:
        for n, _ in enumerate(listener.batches([BATCH] * 2)):
            if n == 1:
                with listener.evaluation():
                    for _ in listener.batches([BATCH] * 3):
                        time.sleep(0.01)
                        listener.step()  # of a function that both loops share
                for _ in listener.batches([BATCH] * 2, evaluation=True):
                    time.sleep(0.01)
            listener.step()
    (line,) = lines
    assert line.iterations == 2 and line.iteration == 2
    assert line.evaluation_ms >= 50
    assert line.iteration_ms < 25


def test_several_listeners_do_not_know_of_each_other() -> None:
    (one, of_one), (other, of_other) = listened(every=2), listened(every=3)
    with one, other:
        for _ in other.batches(one.batches([BATCH] * 6)):
            with one.evaluation():
                other.step()
            one.step()
    assert [line.iteration for line in of_one] == [2, 4, 6]
    assert [line.iteration for line in of_other] == [3, 6]


def test_threads_lose_no_iteration() -> None:
    listener, lines = listened(every=100)

    def loop() -> None:
        for _ in listener.batches([BATCH] * 1000):
            listener.step(score=1.0)

    with listener:
        threads = [threading.Thread(target=loop) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(line.iteration for line in lines) == list(range(100, 4001, 100))
    assert 3900 <= sum(line.iterations for line in lines) <= 4000


def test_an_asynchronous_loop() -> None:
    async def source() -> AsyncIterator[Any]:
        for _ in range(4):
            await asyncio.sleep(0.01)
            yield BATCH

    async def loop() -> None:
        async for _ in listener.batches(source()):
            listener.step()

    listener, lines = listened(every=2)
    with listener:
        asyncio.run(loop())
    assert [line.iteration for line in lines] == [2, 4]
    assert lines[0].etl_ms >= 9


def test_nothing_is_left_behind() -> None:
    before = hooks()
    with PerformanceListener():
        assert hooks() == (before[0] + 1, before[1] + 1)
    assert hooks() == before
    listener = PerformanceListener()
    listener.close()
    listener.close()
    assert hooks() == before
    forgotten = PerformanceListener()
    del forgotten
    gc.collect()
    assert hooks() == before


def test_an_error_in_the_loop_is_the_loops_and_closes_the_listener() -> None:
    before = hooks()
    with pytest.raises(ZeroDivisionError), PerformanceListener() as listener:
        for _ in listener.batches([BATCH]):
            _ = 1 / 0
    assert hooks() == before


def test_a_score_that_is_no_number_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    listener, lines = listened(every=1)
    with listener, caplog.at_level(logging.WARNING):
        for _ in listener.batches([BATCH] * 3):
            listener.step(score=np.zeros(3))
    assert [line.score for line in lines] == [None] * 3
    assert len(caplog.records) == 1 and "one number" in caplog.text


def test_a_writer_that_fails_is_no_matter_of_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    class Full:
        def __call__(self, line: Line) -> None:
            raise OSError("no space left on device")

    listener, lines = listened(every=1, writers=[Full()])
    with listener, caplog.at_level(logging.WARNING):
        for _ in listener.batches([BATCH] * 3):
            listener.step()
    assert len(lines) == 3
    assert len(caplog.records) == 1 and "Full writes no longer: no space left" in caplog.text


def test_it_logs(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), PerformanceListener(batch_size=4, every=1) as listener:
        for _ in listener.batches([BATCH]):
            listener.step(score=0.5)
    assert caplog.records[0].name == "perfdoctor.listener"
    assert caplog.messages[0].startswith("ETL: ") and "score: 0.5;" in caplog.messages[0]


def test_where_the_log_hides_it_that_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), PerformanceListener(every=1) as listener:
        for _ in listener.batches([BATCH] * 3):
            listener.step()
    assert len(caplog.records) == 1 and "setLevel(logging.INFO)" in caplog.text


def test_where_no_logging_is_set_up_it_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    with PerformanceListener(every=1) as listener:
        for _ in listener.batches([BATCH]):
            listener.step()
    assert capsys.readouterr().err.startswith("ETL: ")


def test_lines_as_json(tmp_path: Path) -> None:
    file = tmp_path / "lines.jsonl"
    listener, lines = listened(every=2, path=file)
    with listener:
        for _ in listener.batches([BATCH] * 4):
            listener.step(score=0.25)
    read = [msgspec.json.decode(each, type=Line) for each in file.read_bytes().splitlines()]
    assert read == lines and len(read) == 2


def test_a_hook_of_periodic_actions() -> None:
    listener, lines = listened(every=2)
    hook = listener.as_hook()
    with listener:
        told = [hook(step) for step in range(100, 104)]
        hook(104, t=time.time())
    assert told == [True, False, True, False]
    assert [line.iteration for line in lines] == [102, 104]


def test_wrong_use_is_a_sentence() -> None:
    with pytest.raises(ValueError, match="every is 0; expected 1 or more"):
        PerformanceListener(every=0)


@pytest.mark.parametrize("name", ["perfdoctor", "perfdoctor.listener"])
def test_importing_it_brings_neither_jax_nor_rich(name: str, run: Callable[[str], str]) -> None:
    heavy = {"jax", "numpy", "rich", "psutil"}
    code = f"import {name}, sys; print(sorted({heavy} & set(sys.modules)))"
    assert run(code) == "[]"


@pytest.fixture
def run() -> Callable[[str], str]:
    """The output of a program."""
    import subprocess

    def ran(code: str) -> str:
        command = [sys.executable, "-c", code]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    return ran
