from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from perfdoctor.schema.observation import Observation
from perfdoctor.schema.program import Argument
from perfdoctor_checks import transfers
from tests.checks.soundness import assert_sound
from tests.recorded import recorded

MIB = 2**20


def argument(name: str, *shape: int) -> Argument:
    """In float32, not donated."""
    return Argument(name=name, shape=shape, dtype="f32", donated=False)


INPUTS, LABELS = argument("inputs", 64, 128), argument("labels", 64)
TABLE, MASK = argument("table", 50_000, 512), argument("mask", 8, 8)
WEIGHT, MOMENTUM = argument("state.weight", 4096, 4096), argument("state.momentum", 4096, 4096)


def uploading(uploads: float, *data: Argument, **fields: Any) -> Observation:
    """A script's run, made up: a state of two arrays, these data, and 4 of 10 ms for copying."""
    seen = recorded("healthy")
    assert seen.steps is not None and seen.program is not None
    sizes = {each.shape[0] for each in data if each.shape}
    times = {"time_ms": 10.0, "device_busy_ms": 6.0, "upload_ms": 4.0, "exposed_wait_ms": 0.0}
    steps = replace(
        seen.steps,
        uploads=uploads,
        batch_size=sizes.pop() if len(sizes) == 1 else None,
        **{**times, **fields},
    )
    state = (WEIGHT, MOMENTUM)
    program = replace(
        seen.program,
        arguments=(*state, *data),
        results=tuple((each.shape, each.dtype) for each in state),
        constant_bytes=0,
    )
    target = replace(seen.target, workload=None)
    return replace(seen, steps=steps, program=program, target=target)


@pytest.mark.parametrize(
    "name", ["healthy", "slow_etl", "gc_pressure", "double_precision", "tiny_batch"]
)
def test_is_silent_where_only_batches_are_uploaded(name: str) -> None:
    assert transfers.check(recorded(name)).kind == "ok"


def test_finds_a_state_that_goes_to_the_host_and_back() -> None:
    seen = recorded("transfers")
    outcome = transfers.check(seen)
    assert outcome.kind == "issue"
    assert_sound(outcome, seen)
    assert outcome.summary.startswith("the state comes from the host in each step")
    assert outcome.fixes[0].change is not None
    assert outcome.fixes[0].change.workload == {"training.state_on_host": False}


def test_has_nothing_to_say_of_a_step_that_is_no_program() -> None:
    assert transfers.check(recorded("missing_jit")).kind == "not-applicable"


def test_names_a_table_that_is_sent_in_each_step() -> None:
    seen = uploading(3, INPUTS, LABELS, TABLE)
    outcome = transfers.check(seen)
    assert outcome.kind == "issue"
    assert_sound(outcome, seen)
    assert "97.7 MiB" in outcome.summary and "likely table" in outcome.summary
    assert "jax.device_put" in outcome.fixes[0].how


def test_copying_that_the_device_hides_is_no_finding() -> None:
    assert transfers.check(uploading(3, INPUTS, LABELS, TABLE, device_busy_ms=9.95)).kind == "ok"


def test_small_arrays_are_no_finding() -> None:
    assert transfers.check(uploading(3, INPUTS, LABELS, MASK)).kind == "ok"


def test_data_without_a_size_in_common_may_all_be_new() -> None:
    """As the nodes and edges of graphs are."""
    assert transfers.check(uploading(2, INPUTS, TABLE)).kind == "ok"


def test_a_table_that_lies_on_the_device_is_no_finding() -> None:
    assert transfers.check(uploading(2, INPUTS, LABELS, TABLE)).kind == "ok"


def test_a_state_on_the_host_is_found_in_a_script_too() -> None:
    seen = uploading(4, INPUTS, LABELS, exposed_wait_ms=3.0)
    outcome = transfers.check(seen)
    assert outcome.kind == "issue" and "state.weight, state.momentum" in outcome.summary
    assert_sound(outcome, seen)
    assert "jax.device_get" in outcome.fixes[0].how and outcome.fixes[0].change is None


def test_a_state_handled_on_the_host_is_most_of_the_main_threads_other_work() -> None:
    times = {"device_busy_ms": 2.0, "upload_ms": 0.0, "exposed_other_ms": 6.0}
    gain = transfers.check(uploading(4, INPUTS, LABELS, **times)).gain
    assert gain is not None
    assert gain.speedup == pytest.approx(10 / (10 - 0.9 * 6))
    assert gain.high == pytest.approx(10 / 4)


def test_gain_is_bounded_by_the_time_in_which_the_device_idles() -> None:
    gain = transfers.check(uploading(4, INPUTS, LABELS, exposed_wait_ms=30.0)).gain
    assert gain is not None
    assert gain.high == pytest.approx(10 / 6)
    assert gain.low == pytest.approx(10 / 8)


def test_large_constants_are_a_risk_and_no_loss() -> None:
    seen = uploading(2, INPUTS, LABELS)
    assert seen.program is not None
    large = replace(seen, program=replace(seen.program, constant_bytes=94 * MIB))
    outcome = transfers.check(large)
    assert outcome.kind == "hint" and "94 MiB of constants" in outcome.summary
    assert_sound(outcome, large)
    small = replace(seen, program=replace(seen.program, constant_bytes=10 * MIB))
    assert transfers.check(small).kind == "ok"


def test_without_the_program_what_is_uploaded_has_no_name() -> None:
    assert transfers.check(replace(uploading(3), program=None)).kind == "not-measured"
    assert transfers.check(replace(uploading(0), program=None)).kind == "ok"


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [("f64", 64), ("bf16", 16), ("i1", 8), ("ui8", 8), ("f8E4M3FN", 8), ("?", 32)],
)
def test_bits_of_an_element(dtype: str, bits: int) -> None:
    assert transfers.bits(dtype) == bits


@given(
    uploads=st.floats(0, 8),
    time_ms=st.floats(0, 1e4),
    busy_ms=st.floats(0, 1e4),
    upload_ms=st.floats(0, 1e4),
    wait_ms=st.floats(0, 1e4),
)
def test_estimates_are_in_order_whatever_was_measured(
    uploads: float, time_ms: float, busy_ms: float, upload_ms: float, wait_ms: float
) -> None:
    """Made up, degenerate ones among them: more busy, or more copying, than there was time."""
    seen = uploading(
        uploads,
        INPUTS,
        LABELS,
        TABLE,
        time_ms=time_ms,
        device_busy_ms=busy_ms,
        upload_ms=upload_ms,
        exposed_wait_ms=wait_ms,
        wait_ms=wait_ms,
    )
    outcome = transfers.check(seen)
    if outcome.kind == "issue":
        assert_sound(outcome, seen)
