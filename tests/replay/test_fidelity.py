"""Whether what a replay gains holds for the program."""

import math

import pytest

from perfdoctor.replay.fidelity import emulation_error, why_unfaithful
from perfdoctor.schema.calls import Alone


@pytest.mark.parametrize(("emulated_ms", "faithful"), [(9.2, True), (10.9, True), (8.9, False)])
def test_an_emulation_is_faithful_within_a_tenth(emulated_ms: float, faithful: bool) -> None:
    alone = Alone(alone_ms=1.0, emulated_ms=emulated_ms, observed_ms=10.0)
    assert (why_unfaithful(alone) is None) == faithful
    assert emulation_error(alone) == pytest.approx(math.log(emulated_ms / 10))
