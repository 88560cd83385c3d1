"""Our side of the counters that a worker shares with us."""

from pathlib import Path

import pytest

from perfdoctor.counters import (
    CALLS,
    COMPILES,
    FIRST,
    KEPT,
    PAUSES_KEPT,
    REST_AT,
    RESTS_SINCE_NS,
    SAMPLES,
    SIZE_BYTES,
    opened,
    paused_ns,
)
from perfdoctor.trials.shared_counters import SharedCounters


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "counters"


def other_side(file: Path) -> memoryview:
    """As the worker sees it."""
    return opened(file.parent, file.name)


def call(numbers: memoryview, *instants: int) -> None:
    for instant in instants:
        numbers[FIRST + numbers[CALLS] % KEPT] = instant
        numbers[CALLS] += 1


def test_nothing_is_counted_at_first(file: Path) -> None:
    counters = SharedCounters(file)
    assert (counters.calls, counters.compiles, counters.since(0)) == (0, 0, [])
    assert file.stat().st_size == SIZE_BYTES


def test_what_one_side_counts_the_other_side_sees(file: Path) -> None:
    counters = SharedCounters(file)
    numbers = other_side(file)
    call(numbers, 10, 20, 30)
    numbers[COMPILES] += 2
    assert (counters.calls, counters.compiles) == (3, 2)
    assert counters.since(0) == [10, 20, 30]


@pytest.mark.parametrize(("number", "instants"), [(-5, [10, 20]), (1, [20]), (2, []), (9, [])])
def test_calls_from_a_number_on(file: Path, number: int, instants: list[int]) -> None:
    counters = SharedCounters(file)
    call(other_side(file), 10, 20)
    assert counters.since(number) == instants


def test_only_the_newest_calls_are_kept(file: Path) -> None:
    counters = SharedCounters(file)
    numbers = other_side(file)
    numbers[CALLS] = KEPT
    call(numbers, 7, 8)
    assert counters.calls == KEPT + 2
    assert counters.since(KEPT) == [7, 8]
    assert len(counters.since(0)) == KEPT


def test_a_step_is_one_sample_if_nothing_else_is_told(file: Path) -> None:
    counters = SharedCounters(file)
    assert counters.samples_per_step == 1
    other_side(file)[SAMPLES] = 64
    assert counters.samples_per_step == 64


def test_instants_of_days_fit(file: Path) -> None:
    counters = SharedCounters(file)
    call(other_side(file), 10**18)
    assert counters.since(0) == [10**18]


def test_a_worker_is_asked_to_rest_and_let_go_on(file: Path) -> None:
    counters = SharedCounters(file)
    numbers = other_side(file)
    counters.ask_to_rest(at_call=3)
    assert numbers[REST_AT] == 3 and counters.rests_since_ns == 0
    numbers[RESTS_SINCE_NS] = 10**18
    assert counters.rests_since_ns == 10**18
    counters.let_go_on()
    assert numbers[REST_AT] == 0
    counters.ask_to_rest(at_call=4)
    assert counters.rests_since_ns == 0


def test_pauses_are_known_to_both_sides(file: Path) -> None:
    counters = SharedCounters(file)
    numbers = other_side(file)
    assert counters.paused_ns(0, 1000) == 0
    counters.note_pause(10, 20)
    counters.note_pause(100, 130)
    assert counters.paused_ns(0, 1000) == paused_ns(numbers, 0, 1000) == 40
    assert counters.paused_ns(15, 110) == 15
    assert counters.paused_ns(20, 100) == 0
    assert counters.calls == 0 and counters.since(0) == []


def test_only_the_newest_pauses_are_kept(file: Path) -> None:
    counters = SharedCounters(file)
    for number in range(PAUSES_KEPT + 3):
        counters.note_pause(10 * number, 10 * number + 1)
    assert counters.paused_ns(0, 10 * (PAUSES_KEPT + 3)) == PAUSES_KEPT
    assert counters.paused_ns(0, 30) == 0
