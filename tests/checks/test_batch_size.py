import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from perfdoctor.schema.observation import Observation
from perfdoctor.schema.program import Executable
from perfdoctor.schema.surroundings import Backend, Device
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
    assert waiting.low > busy.low


def test_an_idle_device_that_waits_for_data_promises_nothing() -> None:
    seen = recorded("tiny_batch")
    assert seen.steps is not None
    time_ms = seen.steps.time_ms
    steps = replace(seen.steps, time_ms=10 * time_ms, exposed_etl_ms=9 * time_ms)
    idle = replace(steps, exposed_etl_ms=0.0, exposed_other_ms=9 * time_ms)
    loading, other = (batch_size.check(replace(seen, steps=each)).gain for each in (steps, idle))
    assert loading is not None and other is not None
    assert loading.speedup < 1.5 < other.speedup


def test_advice_for_a_script_is_no_change() -> None:
    seen = recorded("tiny_batch")
    script = replace(seen, target=replace(seen.target, kind="script", workload=None))
    outcome = batch_size.check(script)
    assert_sound(outcome, script)
    assert [fix.change for fix in outcome.fixes] == [None] * 4
    assert outcome.fixes[0].how == "batch_size = 32"


def needing(temp_mib: float, size: int, left_mib: int = 8_000) -> Observation:
    """The healthy run, as if it had this batch, and its step such intermediate results."""
    seen = with_batch(size)
    assert seen.memory is not None and seen.target.workload is not None
    compiled = Executable(
        flops=None,
        bytes_accessed=None,
        argument_bytes=0,
        output_bytes=0,
        alias_bytes=0,
        temp_bytes=int(temp_mib * 2**20),
        custom_calls={},
        copied_bytes=0,
    )
    training = replace(seen.target.workload.training, batch_size=size)
    workload = replace(seen.target.workload, training=training)
    return replace(
        seen,
        executable=compiled,
        memory=replace(seen.memory, available_bytes=left_mib * 2**20),
        target=replace(seen.target, workload=workload),
    )


def test_a_huge_batch_that_leaves_the_caches_is_tried_smaller() -> None:
    seen = needing(200, 1024)
    outcome = batch_size.check(seen)
    assert outcome.kind == "hint" and outcome.gain is None
    assert_sound(outcome, seen)
    assert outcome.summary == (
        "1024 examples a step make 200 MiB of intermediate results, more than caches hold"
    )
    sizes = [fix.change.workload["training.batch_size"] for fix in outcome.fixes if fix.change]
    assert sizes == [256, 64]
    assert {fix.changes_results for fix in outcome.fixes} == {"training"}


@pytest.mark.parametrize(
    ("temp_mib", "size", "kind"),
    [(64, 1024, "ok"), (65, 1024, "hint"), (500, 511, "ok"), (500, 512, "hint")],
)
def test_large_batches_are_well_while_their_results_are_small(
    temp_mib: float, size: int, kind: str
) -> None:
    assert batch_size.check(needing(temp_mib, size)).kind == kind


def test_memory_that_runs_out_speaks_for_a_smaller_batch() -> None:
    seen = needing(500, 256, left_mib=300)
    outcome = batch_size.check(seen)
    assert_sound(outcome, seen)
    assert outcome.summary.endswith("and 300 MiB of memory are left")
    assert [fix.how for fix in outcome.fixes] == ["[training] batch_size = 64"]
    assert batch_size.check(needing(500, 64, left_mib=300)).kind == "ok"


def test_a_huge_batch_on_an_accelerator_is_well() -> None:
    device = Device(id=0, platform="gpu", kind="H100")
    gpu = Backend(platform="gpu", devices=(device,), start_s=1.0)
    assert batch_size.check(replace(needing(500, 4096), backend=gpu)).kind == "ok"
    assert batch_size.check(replace(needing(500, 4096), executable=None)).kind == "ok"


def test_a_smaller_batch_can_still_be_shared_among_the_devices() -> None:
    seen = needing(500, 600)
    assert seen.target.workload is not None
    training = replace(seen.target.workload.training, devices=8)
    workload = replace(seen.target.workload, training=training)
    seen = replace(seen, target=replace(seen.target, workload=workload))
    assert batch_size.check(seen).kind == "ok"


def test_advice_of_a_smaller_batch_for_a_script_is_no_change() -> None:
    seen = needing(500, 1024)
    script = replace(seen, target=replace(seen.target, kind="script", workload=None), memory=None)
    outcome = batch_size.check(script)
    assert_sound(outcome, script)
    assert [fix.how for fix in outcome.fixes] == ["batch_size = 256", "batch_size = 64"]


@given(st.floats(0, 1e4), st.floats(0, 1e4), st.integers(1, 31))
def test_estimates_are_in_order(time_ms: float, busy_ms: float, size: int) -> None:
    seen = with_batch(size)
    assert seen.steps is not None
    seen = replace(
        seen,
        steps=replace(seen.steps, time_ms=time_ms, device_busy_ms=busy_ms),
        target=replace(seen.target, kind="script", workload=None),
    )
    assert_sound(batch_size.check(seen), seen)


def test_finds_it_in_the_recorded_run_of_a_huge_batch() -> None:
    seen = recorded("huge_batch")
    outcome = batch_size.check(seen)
    assert outcome.kind == "hint"
    assert_sound(outcome, seen)


def test_a_program_that_replaces_none_of_its_arguments_does_not_train() -> None:
    seen = recorded("shared_model")
    assert batch_size.check(seen).kind == "not-applicable"
