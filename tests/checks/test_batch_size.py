import pytest
from msgspec.structs import replace

from perfdoctor.schema.observation import Observation
from perfdoctor_checks import batch_size
from tests.checks.soundness import assert_sound
from tests.recorded import recorded


def with_batch(size: int | None) -> Observation:
    """The healthy run, as if it had this batch."""
    seen = recorded("healthy")
    assert seen.steps is not None
    return replace(seen, steps=replace(seen.steps, batch_size=size))


@pytest.mark.parametrize("name", ["healthy", "slow_etl", "double_precision", "gc_pressure"])
def test_is_silent_on_batches_that_are_large_enough(name: str) -> None:
    assert batch_size.check(recorded(name)).kind == "ok"


def test_finds_a_tiny_batch() -> None:
    seen = recorded("tiny_batch")
    outcome = batch_size.check(seen)
    assert outcome.kind == "issue"
    assert_sound(outcome, seen)
    assert outcome.summary.startswith("2 examples a step")


def test_the_sizes_to_try_are_a_ladder_that_changes_the_training() -> None:
    outcome = batch_size.check(recorded("tiny_batch"))
    sizes = [fix.change.workload["training.batch_size"] for fix in outcome.fixes if fix.change]
    assert outcome.ladder
    assert sizes == [32, 64, 128, 256]
    assert {fix.changes_results for fix in outcome.fixes} == {"training"}


def test_the_evidence_names_the_data_and_nothing_of_the_state() -> None:
    batch = batch_size.check(recorded("tiny_batch")).evidence[0]
    assert (batch.value, batch.source) == (2, "leading size of inputs, labels")


def test_thirty_two_is_large_enough_and_thirty_one_is_not() -> None:
    assert batch_size.check(with_batch(32)).kind == "ok"
    assert batch_size.check(with_batch(31)).kind == "issue"


def test_a_batch_that_cannot_be_read_is_not_called_well() -> None:
    assert batch_size.check(with_batch(None)).kind == "not-measured"


def test_the_gain_is_at_most_what_the_batch_grows_by() -> None:
    gain = batch_size.check(recorded("tiny_batch")).gain
    assert gain is not None and gain.high == 16.0


def test_an_idle_device_promises_more() -> None:
    seen = recorded("tiny_batch")
    assert seen.steps is not None
    idle = replace(seen.steps, device_busy_ms=seen.steps.time_ms / 2)
    busy, waiting = batch_size.check(seen).gain, batch_size.check(replace(seen, steps=idle)).gain
    assert busy is not None and waiting is not None
    assert waiting.speedup > 1.8 > busy.speedup


def test_advice_for_a_script_is_no_change() -> None:
    seen = recorded("tiny_batch")
    script = replace(seen, target=replace(seen.target, kind="script", workload=None))
    outcome = batch_size.check(script)
    assert_sound(outcome, script)
    assert [fix.change for fix in outcome.fixes] == [None] * 4
    assert outcome.fixes[0].how == "batch_size = 32"
