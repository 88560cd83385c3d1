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
from perfdoctor.trials.shared_counters import SharedCounters

LIMIT_S = 60.0
"""Generous: reached only where something is wrong."""


@pytest.fixture
def counters(tmp_path: Path) -> SharedCounters:
    """Our side."""
    return SharedCounters(tmp_path / STEPS)


@pytest.fixture
def numbers(counters: SharedCounters, tmp_path: Path) -> memoryview:
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


def test_a_call_is_written_with_its_instant(counters: SharedCounters, numbers: memoryview) -> None:
    before = time.monotonic_ns()
    for _ in range(3):
        write(numbers)
    instants = counters.since(0)
    assert counters.calls == len(instants) == 3
    assert before <= instants[0] <= instants[1] <= instants[2] <= time.monotonic_ns()


def test_steps_are_numbered_and_counted_until_a_rest(
    counters: SharedCounters, numbers: memoryview
) -> None:
    counters.ask_to_rest(at_call=3)
    assert [(number, counters.calls) for number in steps(numbers)] == [(0, 1), (1, 2), (2, 3)]
    counters.ask_to_rest(at_call=1)
    assert list(steps(numbers)) == [3]
    assert counters.calls == 4


def test_one_that_is_not_asked_does_not_rest(numbers: memoryview) -> None:
    write(numbers)
    assert not is_to_rest(numbers)
    numbers[REST_AT] = 2
    assert not is_to_rest(numbers)
    rest_if_asked(numbers, "outputs", pytest.fail)


def test_one_rests_once_its_outputs_are_there(
    counters: SharedCounters, numbers: memoryview
) -> None:
    seen = []
    write(numbers)
    counters.ask_to_rest(at_call=1)

    def wait(outputs: object) -> None:
        seen.append((outputs, counters.rests_since_ns))

    resting = threading.Thread(target=rest_if_asked, args=(numbers, "outputs", wait))
    resting.start()
    until(lambda: counters.rests_since_ns)
    assert seen == [("outputs", 0)] and resting.is_alive()
    counters.let_go_on()
    resting.join(LIMIT_S)
    assert not resting.is_alive()


def test_one_that_is_asked_anew_before_it_went_on_goes_on_all_the_same(
    counters: SharedCounters, numbers: memoryview
) -> None:
    write(numbers)
    counters.ask_to_rest(at_call=1)
    resting = threading.Thread(target=rest, args=(numbers,))
    resting.start()
    until(lambda: counters.rests_since_ns)
    counters.ask_to_rest(at_call=1)
    resting.join(LIMIT_S)
    assert not resting.is_alive()


def test_phases_within_phases_are_counted_once(
    counters: SharedCounters, numbers: memoryview
) -> None:
    note = Compiling(numbers)
    note("/jax/some/other_duration", 100.0)
    note(PHASES + "jaxpr_trace_duration", 0.0)
    time.sleep(0.01)
    note(PHASES + "jaxpr_trace_duration", 1.0)  # began before the one above, and contains it
    assert counters.compiling_s == pytest.approx(1.0)
    note(COMPILED, 0.0)
    assert (numbers[COMPILES], numbers[CALLS]) == (1, 0)
    assert numbers[COMPILING_NS] == pytest.approx(1e9)


def test_what_is_compiled_takes_no_time_while_suspended(
    counters: SharedCounters, numbers: memoryview
) -> None:
    now = time.monotonic_ns()
    counters.note_pause(now - 10**10, now + 10**12)
    Compiling(numbers)(COMPILED, 5.0)
    assert (counters.compiles, counters.compiling_s) == (1, 0.0)
