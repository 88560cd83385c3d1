import math
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from perfdoctor.schema.calls import Leaf, StepCalls
from perfdoctor.schema.fix import Change
from perfdoctor.schema.observation import Observation
from perfdoctor.schema.surroundings import Backend, Device
from perfdoctor.schema.workload import Inference
from perfdoctor_checks import shared_model
from tests.calls import call_of
from tests.checks.soundness import assert_sound
from tests.recorded import recorded

SERVED = Inference(clients=16)


def served(inference: Inference = SERVED, **steps: float | None) -> Observation:
    """The healthy run, as if 16 threads had asked its model for one example each."""
    seen = recorded("healthy")
    assert seen.steps is not None and seen.target.workload is not None
    fields = {"threads": 16, "call_ms": 32.0, "time_ms": 2.0, "cpu_ms": 3.5, "batch_size": 1}
    workload = replace(seen.target.workload, inference=inference)
    target = replace(seen.target, workload=workload)
    return replace(seen, target=target, steps=replace(seen.steps, **fields | steps))


@pytest.mark.parametrize(
    "name", ["healthy", "slow_etl", "tiny_batch", "gc_pressure", "double_precision"]
)
def test_one_thread_shares_with_nobody(name: str) -> None:
    assert shared_model.check(recorded(name)).kind == "not-applicable"


def test_finds_threads_that_share_a_model() -> None:
    seen = served()
    outcome = shared_model.check(seen)
    assert outcome.kind == "hint" and outcome.gain is None
    assert_sound(outcome, seen)
    assert outcome.summary == (
        "16 threads call step() at once with 1 examples each: "
        "a thread waits 32.00 ms for its turn and its answer"
    )
    assert [fix.how for fix in outcome.fixes] == ["[inference] batched = true"]


def test_the_evidence_tells_latency_and_rate() -> None:
    facts = {fact.name: fact.value for fact in shared_model.check(served()).evidence}
    assert (facts["threads that call"], facts["calls"]) == (16, 500.0)
    assert facts["latency of a call"] == 32.0


@pytest.mark.parametrize("size", [9, 64])
def test_whether_large_calls_gain_by_being_computed_together_a_trial_decides(size: int) -> None:
    outcome = shared_model.check(served(batch_size=size))
    assert outcome.kind == "hint" and outcome.fixes[0].change is not None


def test_threads_that_train_on_large_batches_share_nothing() -> None:
    leaf = Leaf(argument="p", role="state", kind="device", shape=(8,), dtype="float32", bytes=32)
    call = call_of(leaf)
    calls = StepCalls(calls=(call,), time_ms=2.0, steps=9, threads=16)
    assert shared_model.check(replace(served(batch_size=64), calls=calls)).kind == "ok"
    assert shared_model.check(replace(served(batch_size=8), calls=calls)).kind == "hint"


def test_of_a_function_that_is_called_with_two_sizes_the_probed_one_counts() -> None:
    obs = Leaf(argument="obs", role="new", kind="host", shape=(8, 6), dtype="float32", bytes=192)
    call = replace(call_of(obs), before_cpu_ms=0.07, inside_cpu_ms=0.07)
    calls = StepCalls(calls=(call,), time_ms=0.15, steps=500, threads=8)
    seen = served(batch_size=256, threads=8, time_ms=0.15, cpu_ms=0.3, device_busy_ms=0.0)
    seen = replace(seen, calls=calls)
    outcome = shared_model.check(seen)
    assert outcome.kind == "issue" and "with 8 examples each" in outcome.summary
    one = replace(call, leaves=(replace(obs, shape=(256, 6)),))
    large = shared_model.check(replace(seen, calls=replace(calls, calls=(one,))))
    assert large.kind == "hint" and "with 256 examples each" in large.summary


def asked(inside_ms: float, role: Literal["new", "state"] = "new") -> Observation:
    """As if one thread trained, and 16 asked another function for 12 examples each."""
    leaf = Leaf(argument="obs", role=role, kind="host", shape=(12, 6), dtype="float32", bytes=288)
    call = replace(call_of(leaf), function="policy", inside_ms=inside_ms)
    calls = StepCalls(calls=(call,), time_ms=0.2, steps=500, threads=16, in_main_thread=False)
    seen = served(threads=1)
    return replace(seen, calls=calls, target=replace(seen.target, workload=None))


def test_threads_that_ask_beside_the_one_that_trains_are_seen_in_the_calls() -> None:
    outcome = shared_model.check(asked(0.3))
    assert outcome.kind == "hint" and outcome.fixes[0].change is not None
    assert outcome.summary == (
        "16 threads call policy() at once with 12 examples each: a call takes a thread 0.30 ms"
    )
    assert shared_model.check(asked(0.1)).kind == "ok"
    assert shared_model.check(asked(0.3, "state")).kind == "not-applicable"


@pytest.mark.parametrize(("inside_ms", "kind"), [(0.07, "issue"), (0.01, "hint")])
def test_threads_that_wait_for_python_gain_the_dispatches(inside_ms: float, kind: str) -> None:
    call = replace(call_of(), before_cpu_ms=0.07, inside_cpu_ms=inside_ms)
    calls = StepCalls(calls=(call,), time_ms=0.15, steps=500, threads=64)
    seen = served(threads=64, time_ms=0.15, cpu_ms=0.3, device_busy_ms=0.0)
    outcome = shared_model.check(replace(seen, calls=calls))
    assert outcome.kind == kind
    if outcome.gain is not None:
        assert outcome.gain.speedup == pytest.approx(1.85, abs=0.01)


def test_threads_that_mostly_sleep_do_not_meet() -> None:
    assert shared_model.check(served(cpu_ms=0.9, device_busy_ms=0.9)).kind == "ok"
    assert shared_model.check(served(cpu_ms=0.1, device_busy_ms=1.0)).kind == "hint"


def test_a_workload_that_batches_gets_no_change() -> None:
    seen = served(Inference(clients=16, batched=True))
    outcome = shared_model.check(seen)
    assert_sound(outcome, seen)
    assert outcome.fixes[0].change == Change(step={"program": "together"})


def test_advice_for_a_script_is_a_queue_and_a_model_for_each_device() -> None:
    seen = served()
    devices = tuple(Device(id=n, platform="gpu", kind="H100") for n in range(2))
    backend = Backend(platform="gpu", devices=devices, start_s=1.0)
    target = replace(seen.target, kind="script", workload=None)
    script = replace(seen, target=target, backend=backend)
    outcome = shared_model.check(script)
    assert_sound(outcome, script)
    assert "queue" in outcome.fixes[0].how and "device_put" in outcome.fixes[1].how
    together = Change(step={"program": "together"})
    assert [fix.change for fix in outcome.fixes] == [together, None]
    assert len(shared_model.check(replace(script, backend=None)).fixes) == 1


@given(st.floats(0, 1e3), st.floats(0, 1e3), st.integers(0, 99))
def test_degenerate_numbers_are_answered(time_ms: float, cpu_ms: float, threads: int) -> None:
    seen = served(time_ms=time_ms, cpu_ms=cpu_ms, threads=threads, call_ms=0.0)
    outcome = shared_model.check(seen)
    assert outcome.kind in ("issue", "hint", "ok", "not-applicable")


def computing(flops: float | None) -> Observation:
    """Threads whose call has so much arithmetic."""
    seen = served()
    assert seen.executable is not None
    return replace(seen, executable=replace(seen.executable, flops=flops))


def test_what_is_no_arithmetic_is_shared_by_the_requests() -> None:
    seen = computing(4e6)  # 1 % of the 2 ms that a call takes
    outcome = shared_model.check(seen)
    assert outcome.kind == "issue" and outcome.gain is not None
    assert_sound(outcome, seen)
    most = 16 / (1 + 15 * 0.01)
    assert outcome.gain.speedup == pytest.approx(math.sqrt(outcome.gain.low * most))
    assert 1.3 < outcome.gain.low < outcome.gain.speedup < outcome.gain.high == 16


def test_calls_that_compute_all_the_time_gain_nothing_together() -> None:
    assert shared_model.check(computing(400e6)).kind == "hint"
    assert shared_model.check(computing(1e12)).kind == "hint"


def test_what_is_done_while_the_device_idles_is_not_shared() -> None:
    seen = computing(4e6)
    assert seen.steps is not None
    idling = replace(seen, steps=replace(seen.steps, device_busy_ms=0.1))
    assert shared_model.check(idling).kind == "hint"


def test_without_an_account_of_the_arithmetic_a_trial_decides() -> None:
    assert shared_model.check(computing(None)).kind == "hint"
    seen = computing(4e6)
    assert seen.backend is not None
    on_gpu = replace(seen, backend=replace(seen.backend, platform="gpu"))
    assert shared_model.check(on_gpu).kind == "hint"


def test_finds_it_in_the_recorded_run() -> None:
    seen = recorded("shared_model")
    outcome = shared_model.check(seen)
    assert_sound(outcome, seen)
    assert outcome.fixes[0].change is not None
