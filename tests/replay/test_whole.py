"""A function that dispatches its operations, replayed as one program."""

from contextlib import nullcontext
from typing import cast

import pytest

from perfdoctor.replay.process import ReplayProcess
from perfdoctor.replay.whole import ways_of_whole
from perfdoctor.schema.calls import Eager
from perfdoctor.schema.capture import Conditions, Replayed
from perfdoctor.schema.fix import Change
from perfdoctor.trials.live import WorkerEnded
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

    way, _ = ways_of_whole(beside, lambda: cast("ReplayProcess", nullcontext(Ending())))
    with pytest.raises(WorkerEnded):
        way.play(Change(step={"jitted": "whole"}), soon())
    (found,) = made
    assert (found.threads_ms, found.children_ms, found.children) == (1.0, 2.0, 3)
