"""What the calls of a step tell of its data."""

from typing import Any

import pytest

from perfdoctor.schema.calls import Leaf, StepCalls
from tests.calls import call_of


def leaf(role: Any, *shape: int) -> Leaf:
    return Leaf(argument="x", role=role, kind="device", shape=shape, dtype="float32", bytes=4)


@pytest.mark.parametrize(
    ("leaves", "brings"),
    [
        ([leaf("new", 64, 24)], True),
        ([leaf("constant", 64)], True),  # the whole data set in each step
        ([leaf("new", 2, 32, 24)], True),  # each of two devices has half of it
        ([leaf("state", 64, 24), leaf("new")], False),  # a buffer from which the step draws
        ([leaf("state", 64, 24), leaf("new", 8, 64)], True),  # of either axis
        ([], False),
    ],
)
def test_a_batch_is_no_state(leaves: list[Leaf], *, brings: bool) -> None:
    calls = StepCalls(calls=(call_of(*leaves),), time_ms=1.0, steps=9)
    assert calls.brings(64) is brings
