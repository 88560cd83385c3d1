"""What of a target is timed."""

import pytest
from msgspec.structs import replace

from perfdoctor.bench.examine import side_of, why_nothing
from perfdoctor.schema.errors import NothingMeasured
from perfdoctor.schema.run import Failure
from tests.bench.test_pipeline import HERE
from tests.recorded import recorded


def test_the_side_is_the_observed_step_and_writes_nothing_of_its_own() -> None:
    seen = recorded("healthy")
    assert seen.steps is not None
    side = side_of(HERE, seen)
    assert (side.function, side.stride, side.launch.output) == (seen.steps.function, 1, None)
    thrice = replace(seen.steps, calls={seen.steps.function: 2.96})
    assert side_of(HERE, replace(seen, steps=thrice)).stride == 3
    seldom = replace(seen.steps, calls={seen.steps.function: 0.2})
    assert side_of(HERE, replace(seen, steps=seldom)).stride == 1


def test_without_steps_there_is_no_side() -> None:
    blind = replace(recorded("healthy"), steps=None, not_measured={"steps": "it ended at once"})
    with pytest.raises(NothingMeasured, match="no training step was measured: it ended at once"):
        side_of(HERE, blind)
    assert why_nothing(replace(blind, not_measured={})).endswith("none was seen")
    failure = Failure(stage="run", kind="raised", message="no such file", seconds=1.0)
    assert why_nothing(replace(blind, failure=failure)).endswith("no such file")
