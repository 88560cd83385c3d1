"""A replayed step and a program, timed in turn; their times are given here."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from perfdoctor.observe.in_turn import Running
from perfdoctor.replay.in_turn import (
    MOST_TURNS,
    TURN_S,
    TURNS,
    as_then_ms,
    beside_then_ms,
    turns,
    was_disturbed,
)
from perfdoctor.schema.capture import Replayed


class Told(Running):
    """A program that tells what its steps take, and notes when it rests."""

    def __init__(self, steps_ms: list[float | None]) -> None:
        super().__init__(psutil.Process(), Path(), math.inf)
        self.rests, self._steps_ms = False, iter(steps_ms)

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        self.rests = True
        yield
        self.rests = False

    def step_ms(self) -> float | None:
        assert not self.rests
        return next(self._steps_ms)


def test_a_turn_compares_what_both_take_at_the_time() -> None:
    slow = [1.0, 1.0, 2.0, 2.0, 1.5, 1.0]  # the machine
    program = Told([10.0 * each for each in slow[1:]])
    replays, rested = iter(slow), list[bool]()

    def run(seconds: float, until: float) -> Replayed:
        rested.append(program.rests)
        return Replayed(steps=100, wall_s=100 * 8.0 * next(replays) / 1e3)

    found = turns(run, program)
    assert found == pytest.approx([math.log(0.8)] * TURNS)
    assert all(rested) and len(rested) == 1 + TURNS  # it has not gone on when its turns begin


def test_where_turns_differ_there_are_more_of_them() -> None:
    program = Told([10.0, 7.0] * MOST_TURNS)
    found = turns(lambda seconds, until: Replayed(steps=100, wall_s=0.8), program)
    assert len(found) == MOST_TURNS
    a_little = Told([10.0, 10.2] * MOST_TURNS)
    assert len(turns(lambda seconds, until: Replayed(steps=100, wall_s=0.8), a_little)) == TURNS


def test_a_program_that_ends_has_no_more_turns() -> None:
    program = Told([10.0, None])
    found = turns(lambda seconds, until: Replayed(steps=100, wall_s=0.8), program)
    assert found == pytest.approx([math.log(0.8)])


def test_a_step_that_took_longer_by_itself_than_in_its_program_was_disturbed() -> None:
    ratios = {0.8: False, 1.05: False, 2.0: True}
    for ratio, is_disturbed in ratios.items():
        assert was_disturbed([math.log(ratio)] * TURNS) is is_disturbed
    assert not was_disturbed([math.log(0.8), math.log(0.8), math.log(3.0)])
    assert not was_disturbed([])


def test_no_turn_is_begun_that_would_not_end_in_time() -> None:
    program = Told([10.0])
    program.until = time.monotonic() + TURN_S
    assert turns(lambda seconds, until: Replayed(steps=100, wall_s=0.8), program) == []


def test_what_a_step_took_is_told_round_by_round() -> None:
    slow = iter([1.0, 1.0, 1.0, 3.0, 1.0])
    now = [1.0]

    def one(seconds: float, until: float) -> Replayed:
        now[0] = next(slow)
        return Replayed(steps=10, wall_s=0.03 * now[0])

    def other(seconds: float, until: float) -> Replayed:
        return Replayed(steps=10, wall_s=0.01 * now[0])

    found = beside_then_ms(one, other, host_ms=0.0, then_ms=0.5, rounds=4, until=math.inf)
    assert found == pytest.approx(3.0 - 1.0 + 0.5)


@pytest.mark.parametrize(
    ("beside_ms", "host_ms", "then_ms"),
    [
        (21.0, 20.0, 21.5),  # one after the other
        (20.5, 20.0, 20.75),  # half of it is hidden
        (20.0, 20.0, 20.0),  # the host hides all of it
        (19.9, 20.0, 19.9),  # it slept a little less than it was asked to
        (1.0, 0.5, 1.5),  # the device hides the host
        (1.5, 0.5, 2.0),
    ],
)
def test_a_device_that_was_slower_counts_where_the_host_does_not_hide_it(
    beside_ms: float, host_ms: float, then_ms: float
) -> None:
    assert as_then_ms(beside_ms, 1.0, host_ms, 1.5) == pytest.approx(then_ms)
