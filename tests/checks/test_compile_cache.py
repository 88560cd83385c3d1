import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from perfdoctor.schema.fix import Change
from perfdoctor.schema.observation import Observation
from perfdoctor.schema.run import Compile, CompileCache, Setting
from perfdoctor_checks import compile_cache
from perfdoctor_checks._launches import THRESHOLD
from tests.checks.soundness import assert_sound
from tests.recorded import recorded

USED = CompileCache(folder="/home/me/.cache/jax", hits=3, misses=0)


def compiling(
    *seconds: float, steps: int = 1000, step_ms: float = 10.0, script: bool = False
) -> Observation:
    """The healthy run, made up: functions that take so long to compile, and so many steps."""
    seen = recorded("healthy")
    assert seen.steps is not None and seen.target.workload is not None
    compiles = tuple(
        Compile(function=f"f{n}", seconds=each + 0.1, backend_s=each, at_s=5.0)
        for n, each in enumerate(seconds)
    )
    training = replace(seen.target.workload.training, steps=steps)
    workload = None if script else replace(seen.target.workload, training=training)
    return replace(
        seen,
        compiles=compiles,
        compile_cache=None,
        steps=replace(seen.steps, time_ms=step_ms),
        target=replace(seen.target, workload=workload),
    )


@pytest.mark.parametrize(
    "name", ["healthy", "slow_etl", "gc_pressure", "double_precision", "tiny_batch"]
)
def test_is_silent_on_long_runs(name: str) -> None:
    assert compile_cache.check(recorded(name)).kind in ("ok", "not-applicable")


def test_finds_a_short_run_that_mostly_compiles() -> None:
    seen = recorded("compile_cache")
    outcome = compile_cache.check(seen)
    assert outcome.kind == "issue"
    assert_sound(outcome, seen)
    assert outcome.gain is not None and outcome.gain.speedup > 1.05
    change = outcome.fixes[0].change
    assert change is not None
    assert change.speeds_up == "launch"
    assert change.folders == ("JAX_COMPILATION_CACHE_DIR",)
    assert "JAX_COMPILATION_CACHE_DIR=~/.cache/jax" in outcome.fixes[0].how


def test_gain_is_at_most_what_xla_takes_of_the_run() -> None:
    gain = compile_cache.check(compiling(7.5)).gain
    assert gain is not None
    assert gain.high == pytest.approx(2.0)


def test_small_programs_of_one_name_are_saved_at_most() -> None:
    seen = replace(compiling(6.0, script=True), ended_s=20.0)
    assert seen.compiles is not None
    small = replace(seen.compiles[0], function="multiply", backend_s=0.4)
    gain = compile_cache.check(replace(seen, compiles=(*seen.compiles, *[small] * 10))).gain
    assert gain is not None
    assert gain.speedup == pytest.approx(20 / (20 - 6 - 3 * 0.4))
    assert gain.high == pytest.approx(20 / (20 - 6 - 10 * 0.4))


def test_the_same_compilation_is_nothing_in_a_long_run() -> None:
    assert compile_cache.check(compiling(7.5, steps=100_000)).kind == "ok"


def test_what_saves_few_seconds_is_nothing_even_in_a_short_run() -> None:
    assert compile_cache.check(compiling(4.9)).kind == "ok"
    assert compile_cache.check(compiling(5.1)).kind == "issue"


def test_a_run_that_is_long_to_try_is_estimated_only() -> None:
    seen = compiling(50.0, steps=20_000)
    outcome = compile_cache.check(seen)
    assert outcome.kind == "issue" and outcome.fixes[0].change == Change(speeds_up="launch")
    assert_sound(outcome, seen)


def test_a_cache_that_is_used_is_well() -> None:
    assert compile_cache.check(replace(compiling(5.0), compile_cache=USED)).kind == "ok"


def test_a_cache_that_this_run_fills_is_well() -> None:
    filled = replace(USED, hits=0, misses=1)
    assert compile_cache.check(replace(compiling(5.0), compile_cache=filled)).kind == "ok"


def test_a_cache_that_leaves_out_what_takes_time_is_told_of_its_threshold() -> None:
    seen = replace(compiling(*[0.7] * 10), compile_cache=replace(USED, hits=0))
    outcome = compile_cache.check(seen)
    assert outcome.kind == "hint" and "less than 1 s: 10 programs, 7.0 s" in outcome.summary
    assert_sound(outcome, seen)
    threshold = Setting(name=THRESHOLD, value=0, origin="environment")
    assert compile_cache.check(replace(seen, settings=(threshold,))).kind == "ok"


def test_of_a_script_only_long_compilation_is_told() -> None:
    seen = compiling(11.0, script=True)
    outcome = compile_cache.check(seen)
    assert outcome.kind == "hint" and "11.0 s in each launch" in outcome.summary
    assert_sound(outcome, seen)
    assert outcome.fixes[0].change is None
    assert compile_cache.check(compiling(9.0, script=True)).kind == "ok"


def test_a_workload_without_steps_is_judged_as_a_script() -> None:
    assert compile_cache.check(replace(compiling(9.0), steps=None)).kind == "ok"
    assert compile_cache.check(replace(compiling(11.0), steps=None)).kind == "hint"


def test_a_run_that_was_over_before_its_steps_were_seen_is_judged_by_its_length() -> None:
    seen = replace(compiling(11.0, script=True), steps=None, ended_s=22.0)
    outcome = compile_cache.check(seen)
    assert outcome.kind == "issue" and "50% of a run of 22 s" in outcome.summary
    assert_sound(outcome, seen)
    assert outcome.fixes[0].change is not None
    in_passing = replace(compiling(0.5, script=True), steps=None, ended_s=2.0)
    assert compile_cache.check(in_passing).kind == "ok"
    too_few_steps = replace(compiling(7.0), steps=None, ended_s=8.0)
    assert compile_cache.check(too_few_steps).kind == "ok"


def test_of_a_script_whose_launch_is_not_tried_it_must_be_sure_that_seconds_are_saved() -> None:
    seen = replace(compiling(7.0, script=True), ended_s=14.0)
    outcome = compile_cache.check(seen)
    assert outcome.kind == "hint" and "50% of a run of 14 s" in outcome.summary
    assert compile_cache.check(replace(compiling(10.0, script=True), ended_s=60.0)).kind == "hint"
    assert compile_cache.check(replace(compiling(12.0, script=True), ended_s=60.0)).kind == "issue"


def test_what_the_step_compiles_again_and_again_is_left_to_recompilation() -> None:
    seen = compiling(1.0, steps=100)
    assert seen.compiles is not None and seen.steps is not None
    step = replace(seen.compiles[0], function=seen.steps.function)
    assert compile_cache.check(replace(seen, compiles=(step,) * 50)).kind == "ok"
    assert compile_cache.check(recorded("recompilation")).kind == "ok"


def test_nothing_compiled_is_nothing_to_look_at() -> None:
    assert compile_cache.check(compiling()).kind == "not-applicable"


@given(
    seconds=st.lists(st.floats(0, 1e4), max_size=4),
    steps=st.integers(1, 10**9),
    step_ms=st.floats(0, 1e4),
)
def test_estimates_are_in_order_whatever_was_measured(
    seconds: list[float], steps: int, step_ms: float
) -> None:
    """Made up, degenerate ones among them: compilations longer than the run."""
    seen = compiling(*seconds, steps=steps, step_ms=step_ms)
    outcome = compile_cache.check(seen)
    if outcome.kind == "issue":
        assert_sound(outcome, seen)
