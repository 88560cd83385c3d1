import re

import pytest
from msgspec.structs import replace

from perfdoctor.schema.calls import Restless, StepCalls
from perfdoctor.schema.errors import NothingMeasured
from perfdoctor.schema.fix import Change
from perfdoctor.schema.observation import Observation
from perfdoctor.schema.parts import Parts
from perfdoctor.schema.report import Outcome
from perfdoctor.schema.workload import Data
from perfdoctor_checks import etl
from perfdoctor_checks._loading import CHEAPER, for_script
from tests.checks.soundness import assert_applicable, assert_sound
from tests.recorded import recorded


def slow(data: Data, cores: float = 2.0) -> Observation:
    """The slow run, as if it had loaded its data in this way."""
    seen = recorded("slow_etl")
    assert seen.target.workload is not None
    workload = replace(seen.target.workload, data=data)
    host = replace(seen.host, usable_cores=cores)
    return replace(seen, target=replace(seen.target, workload=workload), host=host)


def exposed(milliseconds: float) -> Outcome:
    """What is said of a healthy run whose device waits so long for data."""
    seen = recorded("healthy")
    assert seen.steps is not None
    return etl.check(replace(seen, steps=replace(seen.steps, exposed_etl_ms=milliseconds)))


@pytest.mark.parametrize("name", ["healthy", "gc_pressure", "double_precision"])
def test_is_silent_where_loading_is_hidden(name: str) -> None:
    assert etl.check(recorded(name)).kind == "ok"


def test_of_a_run_that_ended_before_a_window_nothing_of_loading_is_known() -> None:
    seen = recorded("healthy")
    assert seen.steps is not None
    with pytest.raises(NothingMeasured, match="ended before it was steady"):
        etl.check(replace(seen, steps=replace(seen.steps, is_traced=False)))


def test_finds_a_step_that_waits_for_its_data() -> None:
    seen = recorded("slow_etl")
    outcome = etl.check(seen)
    assert outcome.kind == "issue"
    assert_sound(outcome, seen)


def test_names_the_function_and_line_that_take_the_time() -> None:
    summary = etl.check(recorded("slow_etl")).summary
    assert "in decode() (reference/data.py:" in summary
    assert re.search(r"the device waits \d+\.\d ms a step", summary)


def test_gain_is_no_more_than_the_wait_itself() -> None:
    seen = recorded("slow_etl")
    gain = etl.check(seen).gain
    assert gain is not None and seen.steps is not None
    steps = seen.steps
    assert gain.low > 1.05
    other_work_ms = (steps.cpu_ms - steps.etl_ms) / seen.host.usable_cores
    assert gain.high <= steps.time_ms / min(steps.device_busy_ms, other_work_ms)


def test_a_wait_within_the_noise_of_the_run_has_no_sure_gain() -> None:
    seen = recorded("slow_etl")
    assert seen.steps is not None
    noisy = replace(seen, steps=replace(seen.steps, standard_error_ms=seen.steps.time_ms))
    gain = etl.check(noisy).gain
    assert gain is not None and gain.low == 1.0


def test_a_wait_shorter_than_the_samplers_grain_is_no_finding() -> None:
    assert exposed(0.0499).kind == "ok"
    assert exposed(1.0).kind == "issue"


def synchronized(**times_ms: float) -> Outcome:
    """What is said of a run of 10 ms a step that waits for each step, with such times."""
    seen = recorded("healthy")
    assert seen.steps is not None
    steps = replace(seen.steps, time_ms=10.0, waiting_steps=1.0, dispatch_ms=0.5, **times_ms)
    return etl.check(replace(seen, steps=steps))


def test_loading_that_the_step_would_hide_is_a_matter_of_waiting_for_each_step() -> None:
    outcome = synchronized(exposed_etl_ms=3.0, etl_ms=3.0, wait_ms=6.0, device_busy_ms=6.0)
    assert (outcome.kind, outcome.summary) == (
        "ok",
        "loading shows only because the host waits for each step: see host-sync",
    )


def test_of_loading_that_takes_longer_than_the_step_only_the_rest_is_its_own() -> None:
    outcome = synchronized(exposed_etl_ms=5.0, etl_ms=5.0, wait_ms=4.0, device_busy_ms=4.0)
    assert outcome.gain is not None
    assert outcome.gain.speedup == pytest.approx(10 / (10 - 2.0))


def behind_the_step(ready: float | None = None, **changed: float | str) -> Outcome:
    """What is said of a step of 10 ms on two cores behind which the main thread loads.

    `ready`: of the calls, the share before which the last results were computed.
    """
    seen = recorded("healthy")
    assert seen.steps is not None and seen.backend is not None
    usual = {"time_ms": 10.0, "device_busy_ms": 10.0, "etl_ms": 9.0, "exposed_etl_ms": 0.0}
    besides = {"dispatch_ms": 0.5, "wait_ms": 0.0, "standard_error_ms": 0.05, "cpu_ms": 19.0}
    platform = str(changed.pop("platform", "cpu"))
    backend = replace(seen.backend, platform=platform)
    steps = replace(seen.steps, **usual | besides | changed)
    calls = None
    if ready is not None:
        calls = StepCalls(calls=(), time_ms=10.0, steps=100, ready=ready)
    host = replace(seen.host, usable_cores=2.0)
    return etl.check(replace(seen, steps=steps, host=host, backend=backend, calls=calls))


def test_loading_on_the_cores_that_the_step_computes_on_is_to_be_tried() -> None:
    outcome = behind_the_step(ready=0.1)
    assert outcome.kind == "hint" and outcome.gain is not None
    assert outcome.gain.low == 1.0 and outcome.gain.high == pytest.approx(10 / (10 - 9))
    assert "on the cores that the step computes on" in outcome.summary


def test_loading_behind_a_step_on_an_accelerator_is_hidden() -> None:
    assert behind_the_step(ready=0.1, platform="gpu").kind == "ok"


@pytest.mark.parametrize(("etl_ms", "kind"), [(1.9, "ok"), (2.1, "hint")])
def test_loading_that_could_not_gain_what_its_work_must_is_hidden(etl_ms: float, kind: str) -> None:
    assert behind_the_step(ready=0.1, etl_ms=etl_ms).kind == kind


@pytest.mark.parametrize(
    ("threads_ms", "children_ms", "restless_ms", "kind"),
    [
        (8.0, 0.0, 0.0, "hint"),
        (0.0, 8.0, 0.0, "hint"),
        (2.0, 0.0, 0.0, "ok"),
        (8.0, 0.0, 7.0, "ok"),
    ],
)
def test_threads_and_processes_that_load_on_the_steps_cores_are_to_be_tried(
    threads_ms: float, children_ms: float, restless_ms: float, kind: str
) -> None:
    seen = recorded("healthy")
    assert seen.steps is not None
    never_rests = Restless(name="spinner", is_process=False, cpu_ms=restless_ms)
    calls = StepCalls(
        calls=(),
        time_ms=10.0,
        steps=100,
        threads_cpu_ms=threads_ms,
        children_cpu_ms=children_ms,
        restless=(never_rests,) if restless_ms else (),
        busiest_beside="Thread-1 (load)",
    )
    steps = replace(seen.steps, time_ms=10.0, etl_ms=0.1, exposed_etl_ms=0.0, cpu_ms=19.0)
    script = replace(seen.target, workload=None)
    outcome = etl.check(replace(seen, target=script, steps=steps, calls=calls))
    assert outcome.kind == kind
    if kind == "hint":
        assert "work for 8.0 ms a step" in outcome.summary and outcome.gain is not None
        assert outcome.summary.endswith("Thread-1 (load) the most")
    acting = replace(calls, is_asked=True)  # they act, rather than load
    assert etl.check(replace(seen, target=script, steps=steps, calls=acting)).kind == "ok"


def test_where_results_are_computed_before_each_call_the_device_waits_for_all_that_is_loaded() -> (
    None
):
    outcome = behind_the_step(ready=0.95, etl_ms=6.0)
    assert outcome.kind == "issue" and outcome.gain is not None
    assert outcome.gain.speedup == pytest.approx(10 / (10 - 6))
    assert outcome.gain.low == 1.0  # the trace does not show it: a trial decides
    assert outcome.summary.startswith("each step waits for its data, whose loading takes 6.0 ms")


def test_cheaper_preparation_must_gain_a_quarter() -> None:
    ahead, cheaper = for_script()
    assert cheaper.least_gain(0.05) == 0.25
    assert ahead.least_gain(0.05) == 0.05


def test_where_the_loop_is_ours_a_thread_in_it_is_tried_first() -> None:
    seen = recorded("slow_etl")
    of_code = replace(seen.target, workload=None)
    for parts, first in ((None, {"loading": "process"}), (Parts(), {"loading": "thread"})):
        outcome = etl.check(replace(seen, target=replace(of_code, parts=parts)))
        changes = [fix.change for fix in outcome.fixes]
        assert changes[0] is not None and changes[0].step == first
        assert changes[-1] == CHEAPER.change
        assert outcome.sweep


def test_without_places_it_still_says_how_long() -> None:
    outcome = exposed(1.0)
    seen = recorded("healthy")
    assert seen.steps is not None
    steps = replace(seen.steps, exposed_etl_ms=1.0, etl_places=())
    assert (
        etl.check(replace(seen, steps=steps)).summary == "the device waits 1.0 ms a step for data"
    )
    assert outcome.summary.startswith("the device waits 1.0 ms a step for data: ")


def test_images_are_to_be_decoded_once() -> None:
    first = etl.check(slow(Data(source="images"))).fixes[0]
    assert first.change is not None
    assert first.change.workload == {"data.source": "records"}


def test_fixes_that_are_in_use_are_not_offered() -> None:
    fixes = etl.check(slow(Data(source="records", prefetch=4, threads=2))).fixes
    assert [fix.how for fix in fixes] == ["[data] prefetch = 4, workers = 2"]


@pytest.mark.parametrize("cores", [0.5, 1.0, 64.0, 512.0])
def test_fixes_are_valid_on_machines_of_any_size(cores: float) -> None:
    seen = slow(Data(source="images", prefetch=0), cores)
    assert_applicable(etl.check(seen), seen)


@pytest.mark.parametrize("data", [Data(prefetch=64, threads=1), Data(prefetch=0, threads=8)])
def test_preparing_ahead_never_reduces_what_the_workload_has_already(data: Data) -> None:
    changes = [fix.change.workload for fix in etl.check(slow(data)).fixes if fix.change]
    ahead = next(change for change in changes if "data.threads" in change)
    assert int(ahead["data.prefetch"]) >= data.prefetch
    assert int(ahead["data.threads"]) >= data.threads


def test_a_workload_with_every_fix_in_use_still_gets_advice() -> None:
    seen = slow(Data(source="memory", prefetch=8, threads=2, workers=2))
    assert_sound(etl.check(seen), seen)


def test_advice_for_a_script_is_code_and_no_change() -> None:
    seen = recorded("slow_etl")
    script = replace(seen, target=replace(seen.target, kind="script", workload=None))
    outcome = etl.check(script)
    assert_sound(outcome, script)
    assert "DataLoader" in outcome.fixes[0].how
    assert outcome.fixes[0].change == Change(step={"loading": "process"})
