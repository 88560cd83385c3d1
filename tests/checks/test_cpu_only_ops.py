from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from perfdoctor.schema.fix import Change
from perfdoctor.schema.observation import Observation
from perfdoctor.schema.program import Callback
from perfdoctor.schema.run import Setting
from perfdoctor.schema.surroundings import Backend, Device
from perfdoctor_checks import cpu_only_ops
from tests.checks.soundness import assert_sound
from tests.recorded import recorded

GPU = Backend(platform="gpu", devices=(Device(id=0, platform="gpu", kind="H100"),), start_s=1.0)
METRIC = Callback(kind="pure_callback", function="accuracy", file="/src/loop.py", line=9)


def calling(
    callbacks: float, callback_ms: float, *listed: Callback, choice: str = "metric", **steps: Any
) -> Observation:
    """The healthy run, as if its steps of 10 ms had called back to Python so often, so long."""
    seen = recorded("healthy")
    assert seen.steps and seen.program and seen.target.workload
    training = replace(seen.target.workload.training, callback=choice)
    workload = replace(seen.target.workload, training=training)
    fields = {"time_ms": 10.0, "standard_error_ms": 0.1} | steps
    return replace(
        seen,
        target=replace(seen.target, workload=workload),
        program=replace(seen.program, callbacks=listed),
        steps=replace(seen.steps, callbacks=callbacks, callback_ms=callback_ms, **fields),
    )


def script(seen: Observation) -> Observation:
    """The same, of an unchanged script."""
    return replace(seen, target=replace(seen.target, kind="script", workload=None))


@pytest.mark.parametrize(
    "name", ["healthy", "slow_etl", "tiny_batch", "gc_pressure", "double_precision"]
)
def test_is_silent_where_nothing_calls_back(name: str) -> None:
    assert cpu_only_ops.check(recorded(name)).kind == "ok"


def test_finds_a_callback_in_each_step() -> None:
    seen = calling(1.0, 5.0, METRIC)
    outcome = cpu_only_ops.check(seen)
    assert outcome.kind == "issue"
    assert_sound(outcome, seen)
    assert outcome.summary == (
        "pure_callback in accuracy (src/loop.py:9) calls back to Python 1.0 times a step, "
        "5.00 ms in all"
    )
    assert outcome.fixes[0].how == '[training] callback = "none"'


def test_the_estimate_begins_with_half_of_the_callbacks_time() -> None:
    gain = cpu_only_ops.check(calling(1.0, 5.0, METRIC, standard_error_ms=0.0)).gain
    assert gain is not None
    assert gain.low == pytest.approx(10 / 7.5)
    assert gain.speedup == pytest.approx(10 / 5)
    assert gain.high == pytest.approx(50)  # at most 98 % of the step


def test_a_noisy_run_has_no_sure_gain() -> None:
    gain = cpu_only_ops.check(calling(1.0, 2.0, METRIC, standard_error_ms=5.0)).gain
    assert gain is not None and gain.low == 1.0


def test_callbacks_whose_time_is_not_listed_are_a_hint() -> None:
    seen = calling(0.0, 0.0, METRIC)
    outcome = cpu_only_ops.check(seen)
    assert outcome.kind == "hint" and outcome.gain is None
    assert_sound(outcome, seen)


def test_callbacks_that_rarely_run_are_well() -> None:
    assert cpu_only_ops.check(calling(0.01, 0.05, METRIC)).kind == "ok"
    assert cpu_only_ops.check(replace(calling(0.01, 0.05, METRIC), backend=GPU)).kind == "ok"


def test_a_quick_callback_still_stops_an_accelerator() -> None:
    assert cpu_only_ops.check(calling(1.0, 0.05, METRIC)).kind == "ok"
    seen = replace(calling(1.0, 0.05, METRIC), backend=GPU)
    assert_sound(cpu_only_ops.check(seen), seen)


def test_callbacks_of_a_trace_alone_are_found() -> None:
    seen = calling(2.0, 3.0, choice="none")
    outcome = cpu_only_ops.check(seen)
    assert_sound(outcome, seen)
    assert outcome.summary.startswith("a callback calls back")
    assert outcome.fixes[0].change == Change(step={"program": "no-callbacks"})


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        ("pure_callback", "jnp"),
        ("debug_callback", "lax.cond"),
        ("debug_print", "lax.cond"),
        ("io_callback", "every 100 steps"),
    ],
)
def test_advice_for_a_script_depends_on_the_kind(kind: str, advice: str) -> None:
    seen = script(calling(1.0, 5.0, replace(METRIC, kind=kind), METRIC))
    outcome = cpu_only_ops.check(seen)
    assert_sound(outcome, seen)
    assert advice in outcome.fixes[0].how and outcome.fixes[0].change == Change(
        step={"program": "no-callbacks"}
    )
    assert "and 1 more call back" in outcome.summary


@pytest.mark.parametrize(("origin", "removable"), [("environment", True), ("code", False)])
def test_computations_pinned_to_the_cpu_beside_a_gpu_are_a_hint(
    origin: Any, removable: bool
) -> None:
    setting = Setting(name="jax_default_device", value="cpu", origin=origin)
    seen = replace(calling(0.0, 0.0), backend=GPU, settings=(setting,))
    outcome = cpu_only_ops.check(seen)
    assert_sound(outcome, seen)
    assert (outcome.fixes[0].change is not None) == removable
    assert cpu_only_ops.check(replace(seen, backend=None)).kind == "ok"


@given(st.floats(0, 1e4), st.floats(0, 1e4), st.floats(0, 1e4), st.floats(0, 1e3))
def test_estimates_are_in_order(
    callbacks: float, callback_ms: float, time_ms: float, error_ms: float
) -> None:
    seen = calling(callbacks, callback_ms, METRIC, time_ms=time_ms, standard_error_ms=error_ms)
    outcome = cpu_only_ops.check(seen)
    if outcome.kind != "ok":
        assert_sound(outcome, seen)


def test_finds_it_in_the_recorded_run() -> None:
    seen = recorded("host_callback")
    outcome = cpu_only_ops.check(seen)
    assert outcome.kind == "issue"
    assert_sound(outcome, seen)
    assert "pure_callback" in outcome.summary
