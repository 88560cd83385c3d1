"""How long a replayed step is timed."""

import pytest

from perfdoctor.replay.slices import slice_s
from perfdoctor.schema.capture import Replayed


@pytest.mark.parametrize(("step_s", "slice_long_s"), [(0.001, 0.2), (0.5, 1.0), (10.0, 3.0)])
def test_a_slice_holds_some_steps_and_is_not_for_ever(step_s: float, slice_long_s: float) -> None:
    assert slice_s(Replayed(steps=10, wall_s=10 * step_s)) == pytest.approx(slice_long_s)
