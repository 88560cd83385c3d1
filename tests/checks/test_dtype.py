import pytest
from msgspec.structs import replace

from perfdoctor.schema.observation import Observation
from perfdoctor.schema.surroundings import Backend, Device
from perfdoctor_checks import dtype
from tests.checks.soundness import assert_sound
from tests.recorded import recorded

GPU = Backend(platform="gpu", devices=(Device(id=0, platform="gpu", kind="H100"),), start_s=1.0)


def computing(**elements: int) -> Observation:
    """The healthy run, as if its step computed so many elements of each type."""
    seen = recorded("healthy")
    assert seen.program is not None
    return replace(seen, program=replace(seen.program, elements_by_dtype=elements))


@pytest.mark.parametrize("name", ["healthy", "slow_etl", "tiny_batch", "gc_pressure"])
def test_is_silent_on_single_precision(name: str) -> None:
    outcome = dtype.check(recorded(name))
    assert (outcome.kind, outcome.summary) == ("ok", "computes in f32")


def test_finds_double_precision_and_who_switched_it_on() -> None:
    seen = recorded("double_precision")
    outcome = dtype.check(seen)
    assert outcome.kind == "issue"
    assert_sound(outcome, seen)
    assert outcome.summary.startswith("100% of the step's floating-point elements are float64")
    facts = {fact.name: fact for fact in outcome.evidence}
    assert facts["jax_enable_x64"].source == "set in the code"
    assert facts["float64 arguments"].value
    assert facts["float64 arguments"].source.startswith("state.params.")


def test_the_fix_of_a_workload_is_its_dtype() -> None:
    fix = dtype.check(recorded("double_precision")).fixes[0]
    assert fix.change is not None
    assert fix.change.workload == {"training.dtype": "float32"}
    assert fix.changes_results == "numerics"


def test_the_fix_of_a_script_is_a_line_to_paste() -> None:
    seen = recorded("double_precision")
    script = replace(seen, target=replace(seen.target, kind="script", workload=None))
    outcome = dtype.check(script)
    assert_sound(outcome, script)
    assert outcome.fixes[0].how == 'jax.config.update("jax_enable_x64", False)'
    assert outcome.fixes[0].change is None


def test_a_few_wide_scalars_are_no_finding() -> None:
    assert dtype.check(computing(f64=9, f32=991)).kind == "ok"
    assert dtype.check(computing(f64=10, f32=990)).kind == "issue"


def test_the_gain_grows_with_the_share_of_wide_elements() -> None:
    little, much = (dtype.check(computing(f64=n, f32=100 - n)).gain for n in (10, 90))
    assert little is not None and much is not None
    assert 1 < little.speedup < much.speedup < 2


def test_single_precision_on_a_gpu_is_a_hint() -> None:
    seen = replace(recorded("healthy"), backend=GPU)
    outcome = dtype.check(seen)
    assert outcome.kind == "hint" and outcome.gain is None
    assert_sound(outcome, seen)
    assert outcome.fixes[0].how == '[training] dtype = "mixed"'


def test_half_precision_on_a_gpu_is_well() -> None:
    seen = replace(computing(bf16=900, f32=100), backend=GPU)
    outcome = dtype.check(seen)
    assert (outcome.kind, outcome.summary) == ("ok", "computes in bf16")


def test_a_step_without_floating_point_is_not_said_to_be_wide() -> None:
    outcome = dtype.check(computing(i32=1000))
    assert outcome.kind in ("ok", "not-applicable")
    assert "f64" not in outcome.summary
