"""Whether what a replay gains holds for the program."""

import math
from collections.abc import Sequence

import pytest
from msgspec import structs

from perfdoctor.replay import fidelity
from perfdoctor.replay.fidelity import (
    MOST_LATER,
    observed_ms,
    undisturbed_ms,
    why_unfaithful,
)
from perfdoctor.replay.slices import AGAIN_ROUNDS, FIRST_ROUNDS
from perfdoctor.schema.calls import Alone, StepCalls
from perfdoctor.schema.steps import Steps
from tests.calls import call_of
from tests.recorded import recorded


@pytest.mark.parametrize(("emulated_ms", "faithful"), [(9.2, True), (10.9, True), (8.9, False)])
def test_an_emulation_is_faithful_within_a_tenth(emulated_ms: float, faithful: bool) -> None:
    alone = Alone(alone_ms=1.0, emulated_ms=emulated_ms, observed_ms=10.0)
    assert (why_unfaithful(alone) is None) == faithful
    assert alone.emulation_error == pytest.approx(math.log(emulated_ms / 10))


def traced(time_ms: float, calls: float = 1.0, threads: int = 1) -> Steps:
    """Steps of so many calls, as a window shows them."""
    steps = recorded("healthy").steps
    assert steps is not None
    told = {"time_ms": time_ms, "standard_error_ms": 0.1, "threads": threads}
    return structs.replace(steps, function="step", calls={"step": calls}, **told)


def timed(time_ms: float, rare_ms: float = 0.0, ready: float = 1.0) -> StepCalls:
    """Steps of one call, as they were timed before that."""
    call = call_of(before_ms=0.1, before_cpu_ms=0.1, inside_ms=9.0, inside_cpu_ms=9.0)
    return StepCalls(calls=(call,), time_ms=time_ms, steps=50, rare_ms=rare_ms, ready=ready)


def test_a_step_takes_what_it_took_when_the_machine_was_at_rest() -> None:
    assert observed_ms(timed(16.0), traced(12.0)) == 12.0
    assert observed_ms(timed(12.0), traced(16.0)) == 12.0  # a trace is slow
    unsure = structs.replace(traced(12.0), standard_error_ms=3.0)
    assert observed_ms(timed(16.0), unsure) == 16.0


def test_what_is_done_now_and_then_is_not_in_each_window() -> None:
    assert observed_ms(timed(16.0, rare_ms=3.0), traced(12.0)) == 15.0
    assert observed_ms(timed(16.0, rare_ms=6.0), traced(12.0)) == 16.0
    assert observed_ms(timed(16.0, rare_ms=3.0, ready=0.0), traced(12.0)) == 12.0


def test_a_step_that_compiles_is_none_that_a_window_counts() -> None:
    compiling = structs.replace(timed(160.0), compilations=0.02)
    assert observed_ms(compiling, traced(12.0)) == 160.0


@pytest.mark.parametrize(
    "steps", [None, traced(2.0, calls=4.0), traced(2.0, threads=2), traced(2.0, calls=0.0)]
)
def test_steps_of_something_else_tell_nothing(steps: Steps | None) -> None:
    assert observed_ms(timed(16.0), steps) == 16.0


@pytest.mark.parametrize(
    ("measured_ms", "found_ms", "rounds"),
    [
        ([10.9], 10.9, [FIRST_ROUNDS]),
        ([12.0, 10.5], 10.5, [FIRST_ROUNDS, AGAIN_ROUNDS]),
        ([8.0, 8.5], 8.5, [FIRST_ROUNDS, AGAIN_ROUNDS]),  # nothing makes it fast
        ([19.0, 18.0, 10.2], 10.2, [FIRST_ROUNDS, AGAIN_ROUNDS, FIRST_ROUNDS]),
        (
            [19.0, 17.0, 16.0, 18.0],
            16.0,
            [FIRST_ROUNDS, AGAIN_ROUNDS, *[FIRST_ROUNDS] * MOST_LATER],
        ),
    ],
)
def test_an_emulation_that_is_too_slow_is_measured_again_later(
    measured_ms: Sequence[float],
    found_ms: float,
    rounds: Sequence[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fidelity, "LATER_S", 0.0)
    asked, left_ms = list[int](), iter(measured_ms)

    def measured(rounds: int) -> float:
        asked.append(rounds)
        return next(left_ms)

    assert undisturbed_ms(measured, 10.0, math.inf) == found_ms
    assert asked == list(rounds)


def test_nobody_waits_for_a_machine_at_rest_when_the_budget_ends() -> None:
    assert undisturbed_ms(lambda rounds: 19.0, 10.0, 0.0) == 19.0


def test_what_was_measured_in_turn_with_the_program_is_not_waited_for() -> None:
    asked = list[int]()

    def measured(rounds: int) -> float:
        asked.append(rounds)
        return 19.0

    assert undisturbed_ms(measured, 10.0, math.inf, again_later=False) == 19.0
    assert asked == [FIRST_ROUNDS, AGAIN_ROUNDS]
