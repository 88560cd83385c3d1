from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from perfdoctor import Change, Eager, needed
from perfdoctor.schema.calls import StepCalls
from perfdoctor.schema.observation import Observation
from perfdoctor.schema.run import Compile, Place, Setting
from perfdoctor_checks import missing_jit
from perfdoctor_checks._limits import FUSED
from perfdoctor_checks._operations import is_operation, unfused
from tests.checks.soundness import assert_sound
from tests.recorded import recorded


def dispatching(dispatches: float, **fields: Any) -> Observation:
    """A script's run, made up: so many dispatches in 10 ms, the device idle for most of it."""
    seen = recorded("healthy")
    assert seen.steps is not None
    idle = {"exposed_dispatch_ms": 6.0, "exposed_other_ms": 2.0, "device_busy_ms": 2.0}
    steps = replace(seen.steps, dispatches=dispatches, **{"time_ms": 10.0, **idle, **fields})
    return replace(seen, steps=steps, target=replace(seen.target, workload=None))


@pytest.mark.parametrize(
    "name", ["healthy", "slow_etl", "gc_pressure", "double_precision", "tiny_batch"]
)
def test_is_silent_on_a_step_that_is_one_call(name: str) -> None:
    assert missing_jit.check(recorded(name)).kind == "ok"


def test_finds_a_step_without_jit() -> None:
    seen = recorded("missing_jit")
    outcome = missing_jit.check(seen)
    assert outcome.kind == "issue"
    assert_sound(outcome, seen)
    assert outcome.gain is not None and outcome.gain.low > 1.05
    assert outcome.fixes[0].change is not None
    assert outcome.fixes[0].change.workload == {"training.jit": True}


@pytest.mark.parametrize("dispatches", [1.0, 2.0, 8.0])
def test_a_step_of_a_few_jitted_calls_is_a_style(dispatches: float) -> None:
    assert missing_jit.check(dispatching(dispatches)).kind == "ok"


def test_dispatches_behind_which_the_device_is_busy_cost_nothing() -> None:
    hidden = dispatching(300, exposed_dispatch_ms=0.05, exposed_other_ms=0.0, device_busy_ms=9.9)
    outcome = missing_jit.check(hidden)
    assert outcome.kind == "ok" and "hardly waits for" in outcome.summary


def test_arrays_that_are_put_on_the_device_are_no_operations() -> None:
    seen = dispatching(61, calls={"step": 1.0, "stage": 60.0}, work={"step": 1.0})
    assert missing_jit.check(seen).kind == "ok"
    named_so = dispatching(61, calls={"stage": 20.0, "add": 41.0}, work={"stage": 0.6, "add": 0.03})
    assert missing_jit.check(named_so).kind == "issue", "it does work, and is counted once"
    sums = dispatching(61, calls={"step": 1.0, "add": 60.0}, work={"step": 1.0})
    assert missing_jit.check(sums).kind == "issue"


@pytest.mark.parametrize(
    ("waits", "operations", "kind"),
    [(512.0, 471.0, "ok"), (16.0, 17.0, "ok"), (1.0, 17.0, "issue"), (200.0, 471.0, "issue")],
)
def test_operations_that_are_made_to_read_results_are_a_matter_of_host_sync(
    waits: float, operations: float, kind: str
) -> None:
    calls = {"step": 1.0, "dynamic_slice": operations - 9, "squeeze": 9.0}
    seen = dispatching(operations + 1, calls=calls, waits=waits)
    assert missing_jit.check(seen).kind == kind


def test_python_between_calls_that_cost_little_is_not_jits_to_save() -> None:
    games = dispatching(116, exposed_dispatch_ms=0.1, exposed_other_ms=2.0, device_busy_ms=7.9)
    assert missing_jit.check(games).kind == "ok"


def test_jaxs_own_python_around_operations_is_theirs() -> None:
    idle = {"exposed_dispatch_ms": 0.5, "exposed_other_ms": 5.0, "device_busy_ms": 4.5}
    sure = missing_jit.check(dispatching(320, **idle, exposed_operations_ms=4.0)).gain
    unsure = missing_jit.check(dispatching(320, **idle)).gain
    assert sure is not None and unsure is not None
    assert sure.speedup == unsure.speedup
    assert sure.low > 1.2 > 1.05 > unsure.low


def test_leaves_a_setting_to_the_check_of_debug_flags() -> None:
    setting = Setting(name="jax_disable_jit", value=True, origin="environment")
    outcome = missing_jit.check(replace(dispatching(300), settings=(setting,)))
    assert outcome.kind == "not-applicable" and "debug-flags" in outcome.summary
    off = replace(setting, value=False)
    assert missing_jit.check(replace(dispatching(300), settings=(off,))).kind == "issue"
    assert missing_jit.check(replace(dispatching(300), settings=None)).kind == "issue"


def test_advice_for_a_script_is_a_decorator() -> None:
    seen = dispatching(300, other_places=(), work_ms={"add": 1.0})
    outcome = missing_jit.check(seen)
    assert_sound(outcome, seen)
    assert outcome.fixes[0].change == Change(step={"jitted": "whole"})
    assert "@jax.jit" in outcome.fixes[0].how


def test_what_operations_around_a_jitted_step_cost_is_measured_as_a_bound() -> None:
    unseen = dispatching(300, other_places=(), work_ms={"dynamic_slice": 0.05})
    assert missing_jit.check(unseen).fixes[0].change == Change(step={"jitted": "whole"})
    seen = replace(unseen, calls=StepCalls(calls=(), time_ms=10.0, steps=100))
    outcome = missing_jit.check(seen)
    assert_sound(outcome, seen)
    assert outcome.fixes[0].change == Change(step={"handling": 0}, is_bound=True)
    saved = Eager(
        function="step", file="/src/train.py", line=7, call_ms=9.0, share=0.9, is_saved=True
    )
    whole = missing_jit.check(replace(seen, eager=saved)).fixes[0].change
    assert whole is not None and whole.step["jitted"] == "whole"


def test_a_function_that_was_seen_to_dispatch_is_named_and_tried() -> None:
    eager = Eager(
        function="Trainer.evaluate", file="/src/train.py", line=7, call_ms=30.0, share=0.4
    )
    seen = replace(dispatching(2), eager=replace(eager, is_saved=True))
    outcome = missing_jit.check(seen)
    assert_sound(outcome, seen)
    assert outcome.kind == "hint" and "Trainer.evaluate() (src/train.py:7)" in outcome.summary
    assert "def evaluate(" in outcome.fixes[0].how
    alone = replace(seen, steps=None, eager=eager, not_measured={"steps": "none were seen"})
    assert missing_jit.check(alone).kind == "hint"
    all_of_it = replace(eager, share=1.0, why_not="it reads its loss")
    lost = missing_jit.check(replace(alone, eager=all_of_it))
    assert lost.kind == "issue" and lost.summary.endswith("not tried: it reads its loss")
    assert lost.gain is not None and lost.gain.speedup == pytest.approx(2.0)
    read = Place(function="collect", file="/src/train.py", line=9, share=0.9)
    reading = missing_jit.check(replace(alone, eager=replace(all_of_it, reads=read)))
    assert reading.kind == "ok" and "host-sync" in reading.summary


def test_a_workload_that_is_jitted_already_gets_no_change() -> None:
    seen = dispatching(300)
    jitted = replace(seen, target=recorded("healthy").target)
    outcome = missing_jit.check(jitted)
    assert_sound(outcome, jitted)
    assert outcome.fixes[0].change is None


def test_the_low_estimate_counts_the_dispatching_alone() -> None:
    gain = missing_jit.check(dispatching(300)).gain
    assert gain is not None
    assert gain.low == pytest.approx(10 / (10 - 6 / 2))
    assert gain.speedup == pytest.approx(10 / (10 - 8))


@given(time_ms=st.floats(0, 1e4), dispatch_ms=st.floats(-1, 1e4), other_ms=st.floats(-1, 1e4))
def test_estimates_are_in_order_whatever_was_measured(
    time_ms: float, dispatch_ms: float, other_ms: float
) -> None:
    """Made up, degenerate ones among them: parts that are longer than the whole."""
    seen = dispatching(
        50, time_ms=time_ms, exposed_dispatch_ms=dispatch_ms, exposed_other_ms=other_ms
    )
    outcome = missing_jit.check(seen)
    if outcome.kind == "issue":
        assert_sound(outcome, seen)


WORK = {"policy": 0.4, "train": 0.59, "add": 1e-6}


def acting(operations: float, work: dict[str, float]) -> Observation:
    """An actor's policy 74 times a step, and so many single operations."""
    calls = {"policy": 74.0, "train": 3.0, "add": operations}
    return dispatching(sum(calls.values()), calls=calls, work=work)


def test_many_calls_of_a_jitted_whole_are_a_style() -> None:
    assert missing_jit.check(acting(5.0, WORK)).kind == "ok"


def test_what_is_lost_beside_jitted_wholes_is_not_theirs() -> None:
    beside, alone = (missing_jit.check(acting(41.0, work)).gain for work in (WORK, {"add": 0.05}))
    assert beside is not None and alone is not None
    assert beside.speedup < alone.speedup


@pytest.mark.parametrize("name", ["conv_general_dilated", "cumsum", "_where", "_uniform"])
def test_functions_of_jax_are_operations(name: str) -> None:
    assert is_operation(name)
    assert not is_operation(f"my{name}")


def test_single_operations_are_no_wholes_however_much_they_do() -> None:
    seen = dispatching(100.0, calls={"dot": 100.0}, work={"dot": 1.0})
    assert missing_jit.check(seen).kind == "issue"


def test_what_is_not_fused_is_told_by_time_where_that_is_known() -> None:
    calls, work = {"dot": 50.0, "step": 1.0}, {"dot": 0.5, "step": 0.5}
    by_bytes = dispatching(51.0, calls=calls, work=work)
    by_time = dispatching(51.0, calls=calls, work=work, work_ms={"dot": 1.8, "step": 0.2})
    told = [unfused(needed(each.steps)) for each in (by_bytes, by_time)]
    assert told == pytest.approx([0.5, 0.9])


def test_products_and_loading_stay_but_beside_each_other() -> None:
    """Of 4 ms of products half are left, and the 1 ms of loading is hidden behind them."""
    fields = {"calls": {"dot": 30.0, "add": 70.0}, "work_ms": {"dot": 4.0, "add": 2.0}}
    parts = {"device_busy_ms": 6.0, "exposed_dispatch_ms": 3.0, "exposed_other_ms": 0.0}
    seen = dispatching(100.0, **fields, **parts, exposed_etl_ms=1.0, waits=0.0, waiting_steps=0.0)
    waits = replace(seen, steps=replace(needed(seen.steps), waiting_steps=1.0))
    gain, waiting = missing_jit.check(seen).gain, missing_jit.check(waits).gain
    assert gain is not None and waiting is not None
    saved_ms = 4 / 2 + 2 * FUSED + 3
    assert gain.speedup == pytest.approx(10 / (10 - saved_ms - 1))
    assert waiting.speedup == pytest.approx(10 / (10 - saved_ms))


def compiling(function: str, times: int, then: tuple[Compile, ...] = ()) -> Observation:
    """A run in which no steps were told, and that compiles each half second for a tenth."""
    each = [Compile(function=function, seconds=0.1, at_s=n / 2) for n in range(times)]
    seen = recorded("healthy")
    why = {"steps": "something compiles in them again and again"}
    return replace(seen, steps=None, compiles=(*each, *then), not_measured=why)


@pytest.mark.parametrize("function", ["scan", "while", "cond"])
def test_control_flow_that_is_compiled_in_each_step_is_not_in_a_jitted_function(
    function: str,
) -> None:
    seen = compiling(function, 40)
    outcome = missing_jit.check(seen)
    assert outcome.kind == "issue" and outcome.gain is not None
    assert_sound(outcome, seen)
    assert outcome.summary.startswith(f"{function} was compiled 20 times in 9.5 s")
    assert outcome.gain.speedup == pytest.approx(1 / (1 - 0.2))
    assert 1 < outcome.gain.low < outcome.gain.speedup < outcome.gain.high


OTHERS = tuple(Compile(function=f"f{n}", seconds=0.1, at_s=20.0 + n) for n in range(8))


@pytest.mark.parametrize(
    ("function", "times", "then"),
    [("scan", 7, ()), ("scan", 10, ()), ("scan", 40, OTHERS), ("broadcast_in_dim", 40, ())],
)
def test_what_a_set_up_compiles_tells_nothing(
    function: str, times: int, then: tuple[Compile, ...]
) -> None:
    outcome = missing_jit.check(compiling(function, times, then))
    assert outcome.kind == "not-measured"
    assert "again and again" in outcome.summary


@pytest.mark.parametrize(("began_s", "kind"), [(25.0, "ok"), (10.0, "issue")])
def test_with_steps_only_what_is_compiled_beside_them_counts(began_s: float, kind: str) -> None:
    steps = recorded("healthy").steps
    assert steps is not None
    seen = replace(compiling("scan", 40), steps=replace(steps, began_s=began_s, window_s=4.0))
    assert missing_jit.check(seen).kind == kind


@pytest.mark.parametrize(
    ("holds", "work_ms", "others"),
    [
        ((), {"gradients": 4.0, "add": 2.0}, 0.4),
        (("gradients",), {"gradients": 4.0, "add": 2.0}, None),
        ((), {"gradients": 0.2, "add": 2.0}, None),
        ((), {}, 0.5),
    ],
)
def test_what_other_jitted_functions_compute_is_left_when_one_is_jitted(
    holds: tuple[str, ...], work_ms: dict[str, float], others: float | None
) -> None:
    eager = Eager(
        function="fit", file="t.py", line=9, call_ms=9.0, share=0.9, holds=holds, is_saved=True
    )
    work = {"gradients": 0.625, "add": 0.375}
    busy = {"device_busy_ms": 8.0, "exposed_dispatch_ms": 2.0, "exposed_other_ms": 0.0}
    seen = replace(dispatching(300, work=work, work_ms=work_ms, **busy), eager=eager)
    change = missing_jit.check(seen).fixes[0].change
    assert change is not None
    assert change.step == {"jitted": "whole"} | ({"others": others} if others else {})
