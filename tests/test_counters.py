"""The side of the counters that a worker writes."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from perfdoctor.counters import (
    CALLS,
    COMPILED,
    COMPILES,
    COMPILING_NS,
    PHASES,
    REST_AT,
    STEPS,
    Compiling,
    is_to_rest,
    opened,
    rest,
    rest_if_asked,
    steps,
    write,
)
from perfdoctor.trials.tally import Tally

LIMIT_S = 60.0
"""Generous: reached only where something is wrong."""


@pytest.fixture
def tally(tmp_path: Path) -> Tally:
    """Our side."""
    return Tally(tmp_path / STEPS)


@pytest.fixture
def numbers(tally: Tally, tmp_path: Path) -> memoryview:
    """The worker's side."""
    return opened(tmp_path, STEPS)


def until(condition: Callable[[], object]) -> None:
    limit = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.001)


def test_only_the_standard_library_is_imported() -> None:
    program = """
import sys
before = set(sys.modules)
import perfdoctor.counters
new = {name.partition(".")[0] for name in set(sys.modules) - before}
print(sorted(new - set(sys.stdlib_module_names)))
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "['perfdoctor']\n"


def test_a_call_is_written_with_its_instant(tally: Tally, numbers: memoryview) -> None:
    before = time.monotonic_ns()
    for _ in range(3):
        write(numbers)
    instants = tally.since(0)
    assert tally.calls == len(instants) == 3
    assert before <= instants[0] <= instants[1] <= instants[2] <= time.monotonic_ns()


def test_steps_are_numbered_and_counted_until_a_rest(tally: Tally, numbers: memoryview) -> None:
    tally.ask_to_rest(at_call=3)
    assert [(number, tally.calls) for number in steps(numbers)] == [(0, 1), (1, 2), (2, 3)]
    tally.ask_to_rest(at_call=1)
    assert list(steps(numbers)) == [3]
    assert tally.calls == 4


def test_one_that_is_not_asked_does_not_rest(numbers: memoryview) -> None:
    write(numbers)
    assert not is_to_rest(numbers)
    numbers[REST_AT] = 2
    assert not is_to_rest(numbers)
    rest_if_asked(numbers, "outputs", pytest.fail)


def test_one_rests_once_its_outputs_are_there(tally: Tally, numbers: memoryview) -> None:
    seen = []
    write(numbers)
    tally.ask_to_rest(at_call=1)

    def wait(outputs: object) -> None:
        seen.append((outputs, tally.rests_since_ns))

    resting = threading.Thread(target=rest_if_asked, args=(numbers, "outputs", wait))
    resting.start()
    until(lambda: tally.rests_since_ns)
    assert seen == [("outputs", 0)] and resting.is_alive()
    tally.let_go_on()
    resting.join(LIMIT_S)
    assert not resting.is_alive()


def test_one_that_is_asked_anew_before_it_went_on_goes_on_all_the_same(
    tally: Tally, numbers: memoryview
) -> None:
    write(numbers)
    tally.ask_to_rest(at_call=1)
    resting = threading.Thread(target=rest, args=(numbers,))
    resting.start()
    until(lambda: tally.rests_since_ns)
    tally.ask_to_rest(at_call=1)
    resting.join(LIMIT_S)
    assert not resting.is_alive()


def test_phases_within_phases_are_counted_once(tally: Tally, numbers: memoryview) -> None:
    note = Compiling(numbers)
    note("/jax/some/other_duration", 100.0)
    note(PHASES + "jaxpr_trace_duration", 0.0)
    time.sleep(0.01)
    note(PHASES + "jaxpr_trace_duration", 1.0)  # began before the one above, and contains it
    assert tally.compiling_s == pytest.approx(1.0)
    note(COMPILED, 0.0)
    assert (numbers[COMPILES], numbers[CALLS]) == (1, 0)
    assert numbers[COMPILING_NS] == pytest.approx(1e9)


def test_what_is_compiled_takes_no_time_while_suspended(tally: Tally, numbers: memoryview) -> None:
    now = time.monotonic_ns()
    tally.note_pause(now - 10**10, now + 10**12)
    Compiling(numbers)(COMPILED, 5.0)
    assert (tally.compiles, tally.compiling_s) == (1, 0.0)
