"""A function that dispatches its operations, replayed as one program."""

from contextlib import nullcontext
from typing import cast

import pytest
from msgspec.structs import replace

from perfdoctor.replay.process import ReplayProcess
from perfdoctor.replay.whole import beside_calls, ways_of_whole
from perfdoctor.schema.calls import Eager
from perfdoctor.schema.capture import Conditions, Replayed
from perfdoctor.schema.fix import Change
from perfdoctor.trials.live import WorkerEnded
from tests.recorded import recorded
from tests.trials.programs import soon


def test_those_who_worked_beside_a_function_work_beside_it_as_one_program() -> None:
    beside = Eager(
        function="f",
        file="t.py",
        line=1,
        call_ms=9.0,
        share=0.9,
        is_saved=True,
        threads_cpu_ms=1.0,
        children_cpu_ms=2.0,
        children=3,
    )
    made = list[Conditions]()

    class Ending:
        """In place of the process that runs the program."""

        def run(self, conditions: Conditions, *_: float) -> Replayed:
            made.append(conditions)
            raise WorkerEnded("that is enough")

    way, _ = ways_of_whole(beside, None, lambda: cast("ReplayProcess", nullcontext(Ending())))
    with pytest.raises(WorkerEnded):
        way.play(Change(step={"jitted": "whole"}), soon())
    (found,) = made
    assert (found.threads_ms, found.children_ms, found.children) == (1.0, 2.0, 3)


@pytest.mark.parametrize(
    ("waiting_steps", "is_traced", "expected"),
    [
        (0.02, True, Conditions(spin_ms=(2.0,))),
        (1.0, False, Conditions(spin_ms=(2.0,))),
        (1.0, True, Conditions(spin_ms=(1.0,), waits=1.0)),
        (0.5, True, Conditions(spin_ms=(1.0,), waits=1.0)),
    ],
)
def test_who_waits_for_each_call_works_on_after_it(
    waiting_steps: float, is_traced: bool, expected: Conditions
) -> None:
    """The timeline's steps of 5 ms, in which it waits for half a millisecond, are half a call."""
    eager = Eager(function="f", file="t.py", line=1, call_ms=8.0, share=0.8, is_saved=True)
    steps = recorded("healthy").steps
    assert steps is not None
    seen = replace(
        steps, time_ms=5.0, wait_ms=0.5, waiting_steps=waiting_steps, is_traced=is_traced
    )
    found = beside_calls(eager, seen)
    assert found.spin_ms == pytest.approx(expected.spin_ms)
    assert found.waits == expected.waits
