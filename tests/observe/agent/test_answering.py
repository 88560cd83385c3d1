"""The turns that an observed program answers."""

from collections.abc import Iterator
from pathlib import Path
from typing import cast

from perfdoctor.observe.agent.answering import Turns
from perfdoctor.observe.agent.step import StepWatch
from perfdoctor.protocol import TIMED, TURN


class Timed:
    """In place of the watch of a step: what it takes is given."""

    def __init__(self, *taken_ms: float | None) -> None:
        self._taken_ms: Iterator[float | None] = iter(taken_ms)

    def takes_ms(self) -> float | None:
        return next(self._taken_ms)


def turns(folder: Path, *taken_ms: float | None) -> Turns:
    return Turns(folder, cast("StepWatch", Timed(*taken_ms)))


def test_each_turn_is_answered_once(tmp_path: Path) -> None:
    asked = turns(tmp_path, 7.5, None)
    for number in (1, 2):
        (tmp_path / TURN.format(number)).touch()
        asked.answer()
        asked.answer()
    assert (tmp_path / TIMED.format(1)).read_text() == "7.5"
    assert not (tmp_path / TIMED.format(2)).read_text()


def test_nothing_is_timed_that_nobody_asks_for(tmp_path: Path) -> None:
    turns(tmp_path).answer()
    (tmp_path / TURN.format(2)).touch()  # not the next one
    turns(tmp_path).answer()
    assert [each.name for each in tmp_path.iterdir()] == [TURN.format(2)]
