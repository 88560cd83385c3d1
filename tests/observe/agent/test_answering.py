"""The turns that an observed program answers before it is traced."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from perfdoctor.observe.agent.answering import answer_turns
from perfdoctor.observe.agent.step import StepWatch
from perfdoctor.protocol import LEARNT, STOP, TIMED, TURN, TURNS_OVER


class Timed:
    """In place of the watch of a step: what it takes is given."""

    def __init__(self, *taken_ms: float | None) -> None:
        self._taken_ms: Iterator[float | None] = iter(taken_ms)

    def takes_ms(self) -> float | None:
        return next(self._taken_ms)


def answered(folder: Path, *taken_ms: float | None, ended: threading.Event | None = None) -> None:
    answer_turns(folder, cast("StepWatch", Timed(*taken_ms)), ended or threading.Event())


def test_each_turn_is_answered_until_they_are_over(tmp_path: Path) -> None:
    for name in (TURN.format(1), TURN.format(2), TURNS_OVER):
        (tmp_path / name).touch()
    answered(tmp_path, 7.5, None)
    assert (tmp_path / LEARNT).exists()
    assert (tmp_path / TIMED.format(1)).read_text() == "7.5"
    assert not (tmp_path / TIMED.format(2)).read_text()


@pytest.mark.parametrize("name", [STOP, TURNS_OVER])
def test_nobody_is_waited_for_who_asks_for_nothing(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    answered(tmp_path)
    assert not (tmp_path / TIMED.format(1)).exists()


def test_a_program_that_has_ended_answers_nothing(tmp_path: Path) -> None:
    ended = threading.Event()
    ended.set()
    (tmp_path / TURN.format(1)).touch()
    answered(tmp_path, ended=ended)
    assert not (tmp_path / TIMED.format(1)).exists()
