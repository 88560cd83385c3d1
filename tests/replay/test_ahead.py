"""New data that a thread puts on the device a step ahead."""

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from perfdoctor.replay.ahead import fed
from perfdoctor.replay.loop import Loop
from perfdoctor.replay.step import Step
from perfdoctor.schema.capture import Conditions
from tests.replay.captured import Captured, captured, new_batches, training


def threads() -> set[threading.Thread]:
    return set(threading.enumerate())


def stepped(found: Captured) -> Step:
    return Step(found.folder, found.capture, Conditions(resident="ahead"))


def test_a_call_finds_its_new_data_on_the_device(tmp_path: Path) -> None:
    step, before = stepped(captured(new_batches, tmp_path)), threads()
    given: list[tuple[Any, ...]] = []

    def function(*arguments: Any) -> tuple[Any, ...]:
        given.append(arguments)
        return arguments

    assert [type(each) for each in next(step.calls[0].batches)] == [np.ndarray]
    with fed([replace(step.calls[0], function=function)]) as (called,):
        assert len(threads() - before) == 1
        for _ in range(3):
            called(step.first())
    assert threads() == before
    for _, batch in given:
        assert isinstance(batch, jax.Array)
        np.testing.assert_array_equal(batch, next(step.calls[0].batches)[0])


def test_without_new_data_no_thread_is_begun(tmp_path: Path) -> None:
    step, before = stepped(captured(training, tmp_path)), threads()
    with fed(step.calls) as calls:
        assert calls == step.calls and threads() == before


def test_a_loop_runs_with_its_data_put_ahead_and_leaves_no_thread(tmp_path: Path) -> None:
    found, before = captured(new_batches, tmp_path), threads()
    steps, seconds = Loop(found.folder, found.capture, Conditions(resident="ahead")).run(0.05)
    assert steps >= 1 and seconds > 0 and threads() == before
