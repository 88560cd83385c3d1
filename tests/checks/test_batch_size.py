import math

import pytest
from msgspec.structs import replace

from perfdoctor.schema.calls import Kind, Leaf, Role, StepCalls
from perfdoctor.schema.capture import AT_ONCE
from perfdoctor.schema.observation import Observation
from perfdoctor.schema.parts import Parts
from perfdoctor.schema.program import Argument, Executable, Layer, Loop
from perfdoctor.schema.surroundings import Backend, Device
from perfdoctor_checks import batch_size
from tests.calls import call_of
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
    assert outcome.kind == "hint"  # what a larger one gains is for a trial to tell
    assert_sound(outcome, seen)
    assert outcome.summary.startswith("2 examples a step")


def test_the_sizes_to_try_are_a_ladder_that_changes_the_training() -> None:
    outcome = batch_size.check(recorded("tiny_batch"))
    sizes = [fix.change.workload["training.batch_size"] for fix in outcome.fixes if fix.change]
    assert outcome.sweep
    assert sizes == [32, 64, 128, 256]
    assert {fix.changes_results for fix in outcome.fixes} == {"training"}


def test_the_evidence_names_the_data_and_nothing_of_the_state() -> None:
    batch = batch_size.check(recorded("tiny_batch")).evidence[0]
    assert (batch.value, batch.source) == (2, "leading size of inputs, labels")


def test_thirty_two_is_large_enough_and_thirty_one_is_not() -> None:
    assert batch_size.check(with_batch(32)).kind == "ok"
    assert batch_size.check(with_batch(31)).kind == "hint"


def test_a_batch_that_cannot_be_read_is_not_called_well() -> None:
    assert batch_size.check(with_batch(None)).kind == "not-measured"


def test_a_workload_whose_batches_can_be_made_in_any_size_is_tried_up_to_the_knee() -> None:
    parts = Parts(batch_size=4, takes_batch_size=True)
    seen = recorded("tiny_batch")
    seen = replace(seen, target=replace(seen.target, workload=None, parts=parts))
    outcome = batch_size.check(seen)
    changes = [fix.change for fix in outcome.fixes if fix.change]
    assert [change.step["program"] for change in changes[:3]] == [
        *("batch-4-to-32", "batch-4-to-64", "batch-4-to-128"),
    ]
    assert changes[-1].step["program"] == "batch-4-to-16384"
    assert outcome.sweep
    assert outcome.evidence[0].value == 4


def called(*leaves: Leaf) -> Observation:
    """The healthy run, as if its step were one call with these arguments."""
    call = call_of(*leaves)
    seen = recorded("healthy")
    script = replace(seen.target, kind="script", workload=None)
    return replace(seen, calls=StepCalls(calls=(call,), time_ms=1.0, steps=9), target=script)


def leaf(name: str, role: Role, *shape: int, kind: Kind = "host") -> Leaf:
    size = 4 * math.prod(shape)
    return Leaf(argument=name, role=role, kind=kind, shape=shape, dtype="float32", bytes=size)


STATE = leaf("params", "state", 256, 256, kind="device")
KEY = leaf("key", "new", kind="key")


@pytest.mark.parametrize(
    ("leaves", "sizes"),
    [
        ([leaf("x", "new", 8, 65), leaf("y", "new", 8)], [8]),
        ([leaf("x", "new", 65, 8), leaf("y", "new", 8)], [8]),
        ([leaf("x", "new", 4, 24, 3)], [4]),
        ([leaf("x", "new", 4, 24), leaf("y", "new", 24, 4)], [4, 24]),
        ([leaf("x", "new", 7), leaf("images", "constant", 60_000, 784)], [7]),
    ],
)
def test_the_batch_is_an_axis_of_all_that_is_new(leaves: list[Leaf], sizes: list[int]) -> None:
    seen = called(STATE, KEY, *leaves)
    outcome = batch_size.check(seen)
    assert outcome.kind == "hint"
    assert_sound(outcome, seen)
    assert [each.value for each in outcome.evidence if each.name == "batch"] == sizes


def test_an_axis_that_the_program_loops_over_is_time() -> None:
    seen = called(STATE, leaf("x", "new", 10, 2))
    assert seen.program is not None
    loop = Loop(trips=10, function="train", file="train.py", line=3)
    outcome = batch_size.check(replace(seen, program=replace(seen.program, loops=(loop,))))
    assert outcome.evidence[0].value == 2


def test_axes_that_the_program_takes_as_one_are_examples_together() -> None:
    seen = called(STATE, leaf("obs", "new", 16, 256, 8), leaf("action", "new", 16, 256))
    assert seen.program is not None
    arguments = tuple(
        Argument(name=name, shape=shape, dtype="f32", donated=False, flattened=True)
        for name, shape in (("obs", (16, 256, 8)), ("action", (16, 256)))
    )
    program = replace(seen.program, arguments=arguments, results=())
    assert batch_size.check(seen).kind == "hint"
    outcome = batch_size.check(replace(seen, program=program))
    assert outcome.kind == "ok" and outcome.summary.startswith("4096 examples a step")


def test_data_that_are_made_in_the_step_tell_no_batch() -> None:
    assert batch_size.check(called(STATE, KEY)).kind == "not-measured"
    apart = called(STATE, leaf("x", "new", 3), leaf("y", "new", 4))
    assert batch_size.check(apart).kind == "not-measured"


def computing(*rows: int) -> Observation:
    """A step that makes its own data, of layers that compute so many rows at once."""
    seen = called(leaf("p", "state", 4, 4), leaf("key", "state", kind="key"))
    layer = Layer(
        kind="product",
        function="step",
        file="train.py",
        line=1,
        written=1,
        executed=10,
        flops=1e6,
        rows=1,
        inputs=64,
        outputs=64,
        dtype="f32",
    )
    assert seen.program is not None
    layers = tuple(replace(layer, rows=each) for each in rows)
    return replace(seen, program=replace(seen.program, layers=layers))


def test_few_rows_of_a_step_that_makes_its_own_data_are_tried_side_by_side() -> None:
    seen = computing(1, 8, 64)
    outcome = batch_size.check(seen)
    assert_sound(outcome, seen)
    assert outcome.kind == "hint"
    assert "compute 8 rows at once, or fewer" in outcome.summary
    [fix] = outcome.fixes
    assert fix.change is not None and fix.change.step == {"program": AT_ONCE}
    assert fix.changes_results == "training"


def test_many_rows_of_a_step_that_makes_its_own_data_tell_nothing() -> None:
    assert batch_size.check(computing(8, 64, 64)).kind == "not-measured"
    assert batch_size.check(computing(32)).kind == "not-measured"
    few = computing(8)
    assert few.program is not None
    apart = called(STATE, leaf("x", "new", 3), leaf("y", "new", 4))
    assert batch_size.check(replace(apart, program=few.program)).kind == "not-measured"


@pytest.mark.parametrize(("dtype", "kind"), [("uint32", "hint"), ("float32", "not-measured")])
def test_a_step_that_draws_nothing_computes_on_all_data_that_there_are(
    dtype: str, kind: str
) -> None:
    few = computing(8)
    key = replace(leaf("key", "state", 2), dtype=dtype)
    assert batch_size.check(replace(called(STATE, key), program=few.program)).kind == kind


def test_a_raw_key_is_no_batch() -> None:
    few = computing(8)
    key = replace(leaf("key", "new", 2), dtype="uint32")
    outcome = batch_size.check(replace(called(STATE, key), program=few.program))
    assert outcome.kind == "hint" and "its data are made in it" in outcome.summary


def test_a_second_axis_that_all_have_is_no_batch_where_the_first_ones_are() -> None:
    apart = called(STATE, leaf("ids", "new", 48, 24), leaf("pool", "new", 256, 24))
    assert batch_size.check(apart).kind == "not-measured"
    behind_time = called(STATE, leaf("obs", "new", 33, 4, 3), leaf("act", "new", 32, 4))
    assert "4 examples" in batch_size.check(behind_time).summary


def test_calls_without_state_do_not_train() -> None:
    assert batch_size.check(called(leaf("x", "new", 2))).kind == "not-applicable"


def test_advice_for_a_script_is_tried_on_its_step() -> None:
    seen = recorded("tiny_batch")
    script = replace(seen, target=replace(seen.target, kind="script", workload=None))
    outcome = batch_size.check(script)
    assert_sound(outcome, script)
    batch = script.steps.batch_size if script.steps else None
    programs = [fix.change.step["program"] for fix in outcome.fixes if fix.change is not None]
    assert programs == [f"batch-{batch}-to-{rung}" for rung in (32, 64, 128, 256)]
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


def test_finds_it_in_the_recorded_run_of_a_huge_batch() -> None:
    seen = recorded("huge_batch")
    outcome = batch_size.check(seen)
    assert outcome.kind == "hint"
    assert_sound(outcome, seen)


def test_a_program_that_replaces_none_of_its_arguments_does_not_train() -> None:
    seen = recorded("shared_model")
    assert batch_size.check(seen).kind == "not-applicable"
