from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from perfdoctor.schema.calls import Call, Eager, Kind, Leaf, Role, StepCalls
from perfdoctor.schema.fix import Change
from perfdoctor.schema.observation import Observation
from perfdoctor.schema.run import Handed, Place
from perfdoctor_checks import host_sync, missing_jit
from perfdoctor_checks._elements import read_at_once
from tests.calls import call_of
from tests.checks.soundness import assert_sound
from tests.recorded import recorded


def waiting(name: str = "healthy", **fields: Any) -> Observation:
    """A script's run, made up to have these times; 10 ms a step unless told."""
    seen = recorded(name)
    assert seen.steps is not None
    steps = replace(
        seen.steps,
        **{"time_ms": 10.0, "waits": 1.0, "wait_ms": 6.0, "device_busy_ms": 6.0, **fields},
    )
    return replace(seen, steps=steps, target=replace(seen.target, workload=None))


def called(*leaves: Leaf) -> Call:
    """The call of a step."""
    return call_of(*leaves, function="score", before_ms=1.0, before_cpu_ms=1.0)


@pytest.mark.parametrize(
    "name", ["healthy", "slow_etl", "gc_pressure", "double_precision", "tiny_batch"]
)
def test_is_silent_where_results_are_read_rarely(name: str) -> None:
    assert host_sync.check(recorded(name)).kind == "ok"


def test_finds_a_loss_that_is_read_after_each_step() -> None:
    seen = recorded("host_sync")
    outcome = host_sync.check(seen)
    assert outcome.kind == "issue"
    assert_sound(outcome, seen)
    assert "TrainingLoop.report() (reference/loop.py:" in outcome.summary
    assert outcome.fixes[0].change is not None
    assert outcome.fixes[0].change.workload == {"training.log_every": 50}


def test_finds_a_loop_that_sleeps() -> None:
    """Until a result is ready, say: then it is read without a wait."""
    where = Place(function="run", file="/home/me/train.py", line=141, share=0.9)
    asleep = waiting(waits=0.0, wait_ms=0.0, exposed_sleep_ms=4.0, sleep_places=(where,))
    calls = StepCalls(calls=(called(),), time_ms=10.0, steps=50)
    seen = replace(asleep, calls=calls)
    outcome = host_sync.check(seen)
    assert outcome.kind == "issue"
    assert_sound(outcome, seen)
    assert "4.00 ms a step while the device idles, in run() (me/train.py:141)" in outcome.summary
    assert outcome.fixes[0].change == Change(step={"sleeping": 0.0}, is_bound=True)
    assert outcome.gain is not None and outcome.gain.speedup == pytest.approx(10 / 6)
    loading = replace(calls, threads_cpu_ms=5.0)
    others = host_sync.check(replace(asleep, calls=loading))
    assert (others.kind, others.fixes) == ("hint", ())
    assert others.summary.endswith("it may wait for what other threads or processes do")


def test_a_main_thread_may_sleep_while_another_one_trains() -> None:
    asleep = waiting(waits=0.0, exposed_sleep_ms=4.0)
    for calls in (
        None,
        StepCalls(calls=(called(),), time_ms=10.0, steps=50, in_main_thread=False),
        StepCalls(calls=(called(),), time_ms=10.0, steps=50, threads=2),
    ):
        assert host_sync.check(replace(asleep, calls=calls)).kind in ("ok", "not-applicable")


def test_a_short_sleep_is_no_matter() -> None:
    assert host_sync.check(waiting(waits=0.0, exposed_sleep_ms=0.2)).kind == "ok"


def test_leaves_a_state_that_is_fetched_to_the_check_of_transfers() -> None:
    assert host_sync.check(recorded("transfers")).kind == "ok"


@pytest.mark.parametrize(
    ("size", "kind", "is_remade", "outcome"),
    [
        (2**20, "device", True, "ok"),
        (2**20, "host", False, "ok"),
        (2**20, "device", False, "issue"),
        (4096, "host", False, "issue"),
    ],
)
def test_who_fetches_the_state_to_send_it_back_waits_for_that(
    size: int, kind: Kind, is_remade: bool, outcome: str
) -> None:
    leaf = Leaf(
        argument="params",
        role="state",
        kind=kind,
        shape=(size // 4,),
        dtype="float32",
        bytes=size,
        remade=is_remade,
    )
    calls = StepCalls(calls=(called(leaf),), time_ms=10.0, steps=50)
    seen = replace(waiting(dispatches=1.0), calls=calls)
    assert host_sync.check(seen).kind == outcome


def test_has_nothing_to_say_of_threads_that_serve() -> None:
    assert host_sync.check(waiting(threads=8)).kind == "not-applicable"


def test_a_program_of_single_operations_may_read_arrays_element_by_element() -> None:
    read = Place(function="collect", file="/src/train.py", line=9, share=0.9)
    eager = Eager(function="iterate", file="/src/train.py", line=5, call_ms=300.0, share=1.0)
    seen = replace(waiting(), steps=None, eager=replace(eager, reads=read))
    outcome = host_sync.check(seen)
    assert outcome.kind == "issue" and outcome.gain is not None
    assert_sound(outcome, seen)
    assert "collect() (src/train.py:9) reads an array of jax element by element" in outcome.summary
    assert outcome.gain.speedup == pytest.approx(10) and outcome.gain.low == pytest.approx(1 / 0.55)
    assert host_sync.check(replace(seen, eager=eager)).kind == "not-measured"


def test_what_is_read_one_by_one_is_to_be_read_at_once() -> None:
    seen = waiting(
        time_ms=92.0,
        waits=512.0,
        wait_ms=40.0,
        device_busy_ms=15.0,
        dispatches=472.0,
        calls={"step": 1.0, "dynamic_slice": 471.0},
        work={"step": 1.0},
        exposed_wait_ms=40.0,
        exposed_dispatch_ms=17.0,
        exposed_other_ms=20.0,
    )
    outcome = host_sync.check(seen)
    assert outcome.kind == "issue"
    assert_sound(outcome, seen)
    assert outcome.summary.endswith("it reads one by one what 472 dispatches return")
    assert "device_get" in outcome.fixes[0].how
    lost_ms = 40 + 37 * 471 / 472
    assert outcome.gain is not None
    assert outcome.gain.speedup == pytest.approx(92 / (92 - lost_ms))
    assert outcome.gain.low == pytest.approx(92 / (92 - lost_ms / 2))


@pytest.mark.parametrize(
    ("calls", "waits", "kind"),
    [(17.0, 11.8, "hint"), (17.0, 1.0, "issue"), (4.0, 4.0, "issue")],
    ids=["after each action", "once a step", "after each of a few pieces"],
)
def test_results_that_the_next_call_may_be_made_of_are_a_hint(
    calls: float, waits: float, kind: str
) -> None:
    seen = waiting(waits=waits, dispatches=calls + 1, calls={"policy": calls, "update": 1.0})
    outcome = host_sync.check(seen)
    assert outcome.kind == kind
    assert_sound(outcome, seen)


def test_what_goes_to_the_device_again_and_again_is_no_matter_of_reading() -> None:
    where = Place(function="sample", file="/home/me/sac.py", line=7, share=0.1)
    table = Handed(place=where, shape=(2**20,), dtype="float32", bytes=2**22, unchanged=1.0)
    seen = waiting(cpu_ms=8.0, upload_ms=3.0, exposed_wait_ms=4.0, handed=(table,))
    gain = host_sync.check(seen).gain
    assert gain is not None
    assert gain.speedup == pytest.approx(10 / 9)


@pytest.mark.parametrize(("upload_ms", "kind"), [(1.0, "ok"), (0.0, "issue")])
def test_to_wait_for_a_state_of_many_small_arrays_that_is_put_back_is_no_matter_of_reading(
    upload_ms: float, kind: str
) -> None:
    leaves = [
        Leaf(
            argument=f"params['{n}']",
            role="state",
            kind="device",
            shape=(1024,),
            dtype="float32",
            bytes=4096,
            remade=True,
        )
        for n in range(60)
    ]
    seen = waiting(cpu_ms=8.0, upload_ms=upload_ms, dispatches=1.0)
    calls = StepCalls(calls=(called(*leaves),), time_ms=10.0, steps=50)
    assert host_sync.check(replace(seen, calls=calls)).kind == kind


def test_the_gain_is_that_of_overlap() -> None:
    gain = host_sync.check(waiting(cpu_ms=8.0)).gain
    assert gain is not None
    assert gain.speedup == pytest.approx(10 / 6)
    assert gain.low == pytest.approx(10 / (10 - 4 / 2))
    assert gain.high == pytest.approx(10 / (10 - 4 * 2))


def test_the_hosts_own_work_may_be_the_longer_part() -> None:
    gain = host_sync.check(waiting(wait_ms=2.0, device_busy_ms=2.0)).gain
    assert gain is not None and gain.speedup == pytest.approx(10 / 8)


def test_a_host_with_nothing_else_to_do_loses_nothing() -> None:
    assert host_sync.check(waiting(wait_ms=9.9, device_busy_ms=9.95)).kind == "ok"


def test_every_second_step_is_often_and_every_third_is_not() -> None:
    assert host_sync.check(waiting(waits=0.5)).kind == "issue"
    assert host_sync.check(waiting(waits=0.34)).kind == "ok"


def test_what_is_computed_already_is_read_one_by_one_without_a_wait() -> None:
    read = Place(function="add", file="/src/train.py", line=9, share=0.7)
    eager = Eager(
        function="after_step", file="/src/train.py", line=5, call_ms=12.0, share=0.75, reads=read
    )
    seen = waiting(
        time_ms=16.0,
        waits=0.0,
        wait_ms=0.0,
        waiting_steps=0.0,
        device_busy_ms=5.0,
        dispatches=257.0,
        calls={"step": 1.0, "dynamic_slice": 128.0, "squeeze": 128.0},
        work={"step": 1.0},
        exposed_wait_ms=0.0,
        exposed_dispatch_ms=0.5,
        exposed_other_ms=10.3,
    )
    assert host_sync.check(seen).kind == "ok"
    by_stacks = replace(seen, eager=eager)
    outcome = host_sync.check(by_stacks)
    assert outcome.kind == "issue"
    assert_sound(outcome, by_stacks)
    assert outcome.summary.startswith("add() (src/train.py:9) reads an array of jax element by")
    assert missing_jit.check(by_stacks).kind == "ok"
    few = replace(seen, eager=replace(eager, reads=replace(read, share=0.3)))
    assert host_sync.check(few).kind == "ok"
    assert missing_jit.check(seen).kind == "issue"


def test_what_it_gains_is_at_most_what_the_step_gains_beside_loading() -> None:
    seen = waiting()
    assert read_at_once(seen).change is None
    leaf = Leaf(argument="p", role="state", kind="device", shape=(2,), dtype="float32", bytes=8)
    calls = StepCalls(calls=(called(leaf),), time_ms=10.0, steps=50)
    change = read_at_once(replace(seen, calls=calls)).change
    assert change is not None and change.is_bound and change.step == {"handling": 0}


def test_the_losses_of_an_epoch_that_are_read_at_once_are_one_wait() -> None:
    outcome = host_sync.check(waiting(waits=4.0, waiting_steps=0.02))
    assert outcome.kind == "ok"
    assert outcome.summary == "the host waits for a result in 2 % of the steps"
    assert host_sync.check(waiting(waits=4.0, waiting_steps=1.0)).kind == "issue"


def test_advice_for_a_script_is_a_line_of_code() -> None:
    seen = waiting()
    outcome = host_sync.check(seen)
    assert_sound(outcome, seen)
    assert (
        outcome.fixes[0].change == Change(step={"waits": 0.02})
        and "float(loss)" in outcome.fixes[0].how
    )


@pytest.mark.parametrize("log_every", [0, 50, 100])
def test_a_workload_that_logs_rarely_gets_no_change(log_every: int) -> None:
    seen = recorded("healthy")
    assert seen.target.workload is not None
    training = replace(seen.target.workload.training, log_every=log_every)
    workload = replace(seen.target.workload, training=training)
    ill = replace(waiting(), target=replace(seen.target, workload=workload))
    outcome = host_sync.check(ill)
    assert_sound(outcome, ill)
    assert outcome.fixes[0].change == Change(step={"waits": 0.02})


def test_works_without_places_and_program() -> None:
    seen = replace(waiting(wait_places=()), program=None)
    assert_sound(host_sync.check(seen), seen)


@given(
    time_ms=st.floats(0, 1e4),
    wait_ms=st.floats(0, 1e4),
    busy_ms=st.floats(0, 1e4),
    uploads=st.floats(0, 100),
)
def test_estimates_are_in_order_whatever_was_measured(
    time_ms: float, wait_ms: float, busy_ms: float, uploads: float
) -> None:
    """Made up, degenerate ones among them: more busy, or more waiting, than there was time."""
    seen = waiting(time_ms=time_ms, wait_ms=wait_ms, device_busy_ms=busy_ms, uploads=uploads)
    outcome = host_sync.check(seen)
    if outcome.kind == "issue":
        assert_sound(outcome, seen)


@pytest.mark.parametrize(
    ("role", "in_main_thread", "kind"),
    [("new", False, "not-applicable"), ("state", False, "issue"), ("new", True, "issue")],
)
def test_a_thread_that_answers_others_must_read_its_results(
    role: Role, in_main_thread: bool, kind: str
) -> None:
    call = called(
        Leaf(argument="x", role=role, kind="device", shape=(8,), dtype="float32", bytes=32)
    )
    calls = StepCalls(calls=(call,), time_ms=2.0, steps=9, in_main_thread=in_main_thread)
    assert host_sync.check(replace(recorded("host_sync"), calls=calls)).kind == kind
