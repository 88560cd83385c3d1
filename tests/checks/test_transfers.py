from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from perfdoctor.schema.calls import Leaf, StepCalls
from perfdoctor.schema.fix import Change
from perfdoctor.schema.observation import Observation
from perfdoctor.schema.run import Handed, Place
from perfdoctor_checks import transfers
from tests.calls import call_of
from tests.checks.soundness import assert_sound
from tests.recorded import recorded

MIB = 2**20
RESIDENT = Change(step={"resident": "state", "waits": 0.0})


def probed(*leaves: Leaf, **fields: Any) -> Observation:
    """A script's run whose calls were seen: 4 of 10 ms are copying, and the device idles then."""
    call = call_of(*leaves, before_ms=0.1, before_cpu_ms=0.1, inside_ms=9.0, inside_cpu_ms=9.0)
    calls = StepCalls(calls=(call,), time_ms=10.0, steps=50)
    return replace(uploading(**fields), calls=calls)


def uploading(**fields: Any) -> Observation:
    """The same where nobody saw the calls."""
    seen = recorded("healthy")
    assert seen.steps is not None and seen.program is not None
    times = {"time_ms": 10.0, "device_busy_ms": 6.0, "upload_ms": 4.0, "exposed_wait_ms": 0.0}
    steps = replace(seen.steps, **{"uploads": 3.0, **times, **fields})
    program = replace(seen.program, constant_bytes=0)
    target = replace(seen.target, kind="script", workload=None)
    return replace(seen, steps=steps, program=program, target=target, calls=None)


def on_gpu(seen: Observation) -> Observation:
    """The same on an accelerator."""
    assert seen.backend is not None
    return replace(seen, backend=replace(seen.backend, platform="gpu"))


def leaf(argument: str, role: Any, kind: Any, size: int) -> Leaf:
    return Leaf(
        argument=argument, role=role, kind=kind, shape=(size // 4,), dtype="float32", bytes=size
    )


STATE = leaf("params", "state", "host", 20 * MIB)
TABLE = leaf("images", "constant", "host", 90 * MIB)
INDEX = leaf("index", "new", "host", 4096)


@pytest.mark.parametrize(
    "name", ["healthy", "slow_etl", "gc_pressure", "double_precision", "tiny_batch"]
)
def test_is_silent_where_only_batches_are_uploaded(name: str) -> None:
    assert transfers.check(recorded(name)).kind in ("ok", "not-measured")  # as calls were seen


def test_what_is_copied_before_the_calls_is_a_hint_where_the_device_idles_for_it() -> None:
    copied = leaf("batch", "new", "device", 256 * MIB)
    outcome = transfers.check(probed(copied))
    assert outcome.kind == "hint" and "4.0 ms a step" in outcome.summary
    assert transfers.check(probed(copied, device_busy_ms=9.0)).kind == "ok"
    assert transfers.check(probed(copied, upload_ms=2.0)).kind == "ok"


def test_an_accelerator_that_idles_while_data_are_copied_before_the_calls_is_a_finding() -> None:
    copied = leaf("batch", "new", "device", 256 * MIB)
    outcome = transfers.check(on_gpu(probed(copied, exposed_dispatch_ms=4.0)))
    assert outcome.kind == "issue" and "4.0 ms a step" in outcome.summary
    gain = outcome.gain
    assert gain is not None and gain.basis == "estimated"
    assert gain.speedup == pytest.approx(10 / 6) and gain.high == pytest.approx(10 / 6)


def handing(unchanged: float, share: float = 0.3, new: Leaf = INDEX, **fields: Any) -> Observation:
    """A line hands a table of 80 MB to jax, in that share of the samples; 3 of the 4 ms of copying
    are in long copies.
    """
    where = Place(function="sample", file="/home/me/sac.py", line=7, share=share)
    table = Handed(
        place=where, shape=(1_000_000, 20), dtype="float32", bytes=80_000_000, unchanged=unchanged
    )
    return probed(new, handed=(table,), **{"long_upload_ms": 3.0, **fields})


def test_an_array_that_is_handed_over_again_and_again_to_find_some_rows_is_a_finding() -> None:
    found = transfers.check(handing(0.99))
    assert found.gain is not None
    assert found.kind == "issue"
    assert found.gain.speedup == pytest.approx(10 / 7)
    assert "76.3 MiB" in found.summary
    assert "for 3.0 ms a step: float32[1000000, 20] in me/sac.py:7" in found.summary
    assert found.fixes[0].change is None  # a replay has no such copies
    assert found.evidence[-1].source.endswith("99% of it as in the call before")


@pytest.mark.parametrize(
    "seen",
    [
        handing(0.1),
        handing(0.99, share=0.01, long_upload_ms=0.0),
        handing(0.99, share=0.01, new=leaf("images", "new", "host", 20 * MIB)),
        handing(0.99, share=0.01, new=leaf("images", "new", "device", 20 * MIB)),
        handing(0.99, device_busy_ms=9.9),
    ],
    ids=[
        "new data",
        "in no time",
        "large new data in the calls",
        "large new data put there before",
        "while the device computes",
    ],
)
def test_new_data_and_what_is_handed_over_in_no_time_are_none(seen: Observation) -> None:
    assert transfers.check(seen).kind != "issue"


def test_what_is_handed_over_may_be_copied_by_another_thread_and_by_the_device_again() -> None:
    found = transfers.check(handing(0.99, share=0.01, work={"stage": 0.5, "other": 0.1}))
    assert found.gain is not None
    assert "for 3.0 ms a step" in found.summary
    assert found.gain.low == pytest.approx(10 / 8.5)
    assert found.gain.speedup == pytest.approx(10 / 4)  # and half of the 6 ms
    assert found.gain.high == pytest.approx(10 / 3.4)


def test_what_another_thread_copies_is_no_finding_on_an_accelerator_either() -> None:
    """It may idle for something else."""
    copied = leaf("batch", "new", "device", 256 * MIB)
    assert transfers.check(on_gpu(probed(copied, exposed_dispatch_ms=0.1))).kind == "hint"


@pytest.mark.parametrize(
    ("backend", "fields", "kind"),
    [
        ("gpu", {"exposed_dispatch_ms": 3.0}, "hint"),
        ("gpu", {"exposed_dispatch_ms": 0.2}, "ok"),
        ("gpu", {"exposed_dispatch_ms": 3.0, "device_busy_ms": 9.9}, "ok"),
        ("cpu", {"exposed_dispatch_ms": 3.0}, "ok"),
    ],
)
def test_where_an_accelerator_idles_for_new_data_a_thread_that_puts_them_ahead_is_tried(
    backend: str, fields: dict[str, Any], kind: str
) -> None:
    seen = probed(INDEX, **{"upload_ms": 0.5, **fields})
    assert seen.backend is not None
    seen = replace(seen, backend=replace(seen.backend, platform=backend))
    outcome = transfers.check(seen)
    assert outcome.kind == kind
    if kind == "hint":
        assert outcome.fixes[0].change == Change(step={"resident": "ahead"})
        assert "while the device idles" in outcome.summary
        assert seen.program is not None
        large = replace(seen, program=replace(seen.program, constant_bytes=300 * MIB))
        assert "constants are part of the program" in transfers.check(large).summary


def test_finds_a_state_that_goes_to_the_host_and_back() -> None:
    seen = recorded("transfers")
    outcome = transfers.check(seen)
    assert outcome.kind == "issue"
    assert_sound(outcome, seen)
    assert outcome.summary.startswith("the state comes from the host in each step")
    assert outcome.fixes[0].change is not None
    assert outcome.fixes[0].change.workload == {"training.state_on_host": False}


def test_a_data_set_that_is_handed_over_in_each_step_is_seen_by_its_role() -> None:
    seen = probed(TABLE, INDEX)
    outcome = transfers.check(seen)
    assert outcome.kind == "issue" and "90 MiB" in outcome.summary
    assert_sound(outcome, seen)
    assert "images" in outcome.summary and "index" not in outcome.summary
    assert outcome.fixes[0].change == Change(step={"resident": "state"})
    assert any(each.name == "images" and "constant" in each.source for each in outcome.evidence)


def test_a_state_on_the_host_is_found_in_a_script_too() -> None:
    seen = probed(STATE)
    outcome = transfers.check(seen)
    assert outcome.kind == "issue" and "the state comes from the host" in outcome.summary
    assert_sound(outcome, seen)
    assert "jax.device_get" in outcome.fixes[0].how and outcome.fixes[0].change == RESIDENT


def test_new_data_has_to_be_handed_over_however_large_it_is() -> None:
    batch = leaf("batch", "new", "host", 200 * MIB)
    outcome = transfers.check(
        probed(batch, leaf("params", "state", "device", 20 * MIB), upload_ms=2.0)
    )
    assert outcome.kind == "ok" and "200 MiB of them new data" in outcome.summary


def test_what_is_copied_in_microseconds_is_no_finding() -> None:
    small = leaf("mask", "constant", "host", MIB - 4)
    assert transfers.check(probed(small, upload_ms=0.1)).kind == "ok"
    assert transfers.check(probed(leaf("mask", "constant", "host", MIB))).kind == "issue"


def test_a_table_that_lies_on_the_device_is_no_finding() -> None:
    table = leaf("table", "constant", "device", 90 * MIB)
    assert transfers.check(probed(table, upload_ms=0.0)).kind == "ok"


def test_only_its_part_of_the_copying_is_won() -> None:
    batch = leaf("batch", "new", "host", 90 * MIB)
    alone, beside = transfers.check(probed(TABLE)).gain, transfers.check(probed(TABLE, batch)).gain
    assert alone is not None and beside is not None
    assert alone.speedup == pytest.approx(10 / 6)
    assert beside.speedup == pytest.approx(10 / 8)


def test_gain_is_bounded_by_the_time_in_which_the_device_idles() -> None:
    gain = transfers.check(probed(STATE, exposed_wait_ms=30.0)).gain
    assert gain is not None
    assert gain.high == pytest.approx(10 / 6)
    assert gain.low == pytest.approx(10 / 8)


def test_large_constants_are_a_risk_and_no_loss() -> None:
    seen = probed(INDEX, upload_ms=0.0)
    assert seen.program is not None
    large = replace(seen, program=replace(seen.program, constant_bytes=94 * MIB))
    outcome = transfers.check(large)
    assert outcome.kind == "hint" and "94 MiB of constants" in outcome.summary
    assert_sound(outcome, large)
    small = replace(seen, program=replace(seen.program, constant_bytes=10 * MIB))
    assert transfers.check(small).kind == "ok"


def test_where_the_calls_were_not_seen_nothing_is_guessed() -> None:
    assert transfers.check(uploading()).kind == "not-measured"
    assert transfers.check(uploading(uploads=0.0)).kind == "ok"
    assert transfers.check(uploading(upload_ms=0.09)).kind == "ok"


@given(
    time_ms=st.floats(0, 1e4),
    busy_ms=st.floats(0, 1e4),
    upload_ms=st.floats(0, 1e4),
    wait_ms=st.floats(0, 1e4),
    other_ms=st.floats(0, 1e4),
    fetched=st.booleans(),
)
def test_estimates_are_in_order_whatever_was_measured(
    time_ms: float,
    busy_ms: float,
    upload_ms: float,
    wait_ms: float,
    other_ms: float,
    fetched: bool,
) -> None:
    """Made up, degenerate ones among them: more busy, or more copying, than there was time."""
    seen = probed(
        STATE if fetched else TABLE,
        time_ms=time_ms,
        device_busy_ms=busy_ms,
        upload_ms=upload_ms,
        exposed_wait_ms=wait_ms,
        exposed_other_ms=other_ms,
    )
    assert_sound(transfers.check(seen), seen)


REMADE = (
    replace(leaf("params['w']", "state", "device", 20 * MIB), remade=True),
    replace(leaf("params['b']", "state", "device", 4096), remade=True),
)


def test_finds_a_state_that_is_put_back_on_the_device_by_hand() -> None:
    seen = probed(*REMADE, INDEX, dispatches=1.0)
    outcome = transfers.check(seen)
    assert outcome.kind == "issue"
    assert_sound(outcome, seen)
    assert "the state comes from the host in each step: 20 MiB" in outcome.summary
    change = outcome.fixes[0].change
    assert change is not None and change.is_bound
    assert change.step == {"resident": "state", "waits": 0.0, "handling": 0}


def test_a_state_that_operations_make_on_the_device_is_none() -> None:
    assert "state" not in transfers.check(probed(*REMADE, INDEX, dispatches=3.0)).summary


MANY_SMALL = [
    replace(leaf(f"params['{n}']", "state", "device", 4096), remade=True) for n in range(60)
]


def test_many_small_arrays_that_are_put_back_take_time_as_well() -> None:
    seen = probed(*MANY_SMALL, INDEX, dispatches=1.0)
    outcome = transfers.check(seen)
    assert outcome.kind == "issue"
    assert_sound(outcome, seen)
    assert "the state comes from the host in each step: 240 KiB in 60 arrays" in outcome.summary


def test_arrays_that_jnp_array_puts_back_are_not_made_by_operations() -> None:
    seen = probed(*MANY_SMALL, INDEX, dispatches=61.0, calls={"step": 1.0, "stage": 60.0})
    outcome = transfers.check(seen)
    assert outcome.kind == "issue"
    assert_sound(outcome, seen)
    assert "the state comes from the host in each step: 240 KiB in 60 arrays" in outcome.summary


def test_a_copy_that_is_large_is_no_operation_either() -> None:
    table = replace(leaf("state.table", "state", "device", 64 * MIB), remade=True)
    calls, work = {"step": 1.0, "stage": 1.0}, {"step": 0.6, "stage": 0.4}
    outcome = transfers.check(probed(table, INDEX, dispatches=2.0, calls=calls, work=work))
    assert outcome.kind == "issue"
    assert "64 MiB in 1 array (state.table)" in outcome.summary


@pytest.mark.parametrize(
    "seen",
    [
        # by operations, whose Python numbers are uploads as well: p - 0.1 * g
        probed(*MANY_SMALL, INDEX, dispatches=121.0, uploads=61.0),
        probed(*MANY_SMALL, INDEX, dispatches=1.0, upload_ms=0.01),
    ],
)
def test_small_arrays_that_are_not_copied_or_in_no_time_are_no_finding(seen: Observation) -> None:
    assert transfers.check(seen).kind in ("ok", "hint")


def test_a_state_of_which_nothing_waits_or_copies_is_not_on_the_host() -> None:
    still = {"dispatches": 1.0, "upload_ms": 0.0, "waiting_steps": 0.0}
    assert transfers.check(probed(*REMADE, INDEX, **still)).kind == "ok"
    waits = {**still, "waiting_steps": 1.0}
    assert transfers.check(probed(*REMADE, INDEX, **waits)).kind == "issue"


def test_a_state_that_numpy_changes_and_that_is_handed_over_is_advised_to_stay_there() -> None:
    outcome = transfers.check(probed(replace(STATE, remade=True), INDEX))
    change = outcome.fixes[0].change
    assert change is not None and change.is_bound and change.step["handling"] == 0


ANEW = replace(leaf("table", "constant", "device", 20 * MIB), remade=True)


def test_finds_a_constant_that_is_put_on_the_device_anew() -> None:
    seen = probed(ANEW, INDEX)
    outcome = transfers.check(seen)
    assert outcome.kind == "issue"
    assert_sound(outcome, seen)
    assert "20 MiB that are no new data come from the host in each step: table" in outcome.summary
    change = outcome.fixes[0].change
    assert change is not None and not change.is_bound and change.step == {"resident": "state"}


@pytest.mark.parametrize("changed", [{"upload_ms": 0.0}, {"upload_ms": 0.0, "waiting_steps": 1.0}])
def test_a_constant_that_is_made_on_the_device_is_none(changed: dict[str, float]) -> None:
    assert transfers.check(probed(ANEW, INDEX, **changed)).kind != "issue"


def test_where_new_data_are_larger_than_a_constant_they_may_be_what_is_copied() -> None:
    batch = leaf("batch", "new", "device", 21 * MIB)
    assert transfers.check(probed(ANEW, batch)).kind != "issue"


def test_of_a_run_that_was_not_traced_nothing_is_told_of_its_trace() -> None:
    seen = probed(INDEX, is_traced=False, uploads=0.0, upload_ms=0.0)
    outcome = transfers.check(seen)
    assert outcome.kind == "ok" and "1 host arrays a step" in outcome.summary
    assert not any(each.source == "trace" for each in outcome.evidence)
    assert any(each.source == "trace" for each in transfers.check(probed(INDEX)).evidence)
