import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from perfdoctor.schema.fix import Change
from perfdoctor.schema.observation import Observation
from perfdoctor.schema.program import Layer
from perfdoctor.schema.run import Place
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


def test_numbers_of_eight_bits_are_floating_point_numbers() -> None:
    outcome = dtype.check(computing(f8E4M3FN=90, bf16=10))
    assert outcome.summary == "computes in f8E4M3FN"
    mostly = computing(f8E5M2=98, f64=2)  # of all elements, not of the wider ones
    assert dtype.check(mostly).kind == "ok"


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
    assert outcome.fixes[0].change == Change(
        settings={"jax_enable_x64": False}, step={"program": "float32"}
    )


def test_a_few_wide_scalars_are_no_finding() -> None:
    assert dtype.check(computing(f64=29, f32=971)).kind == "ok"
    assert dtype.check(computing(f64=30, f32=970)).kind == "issue"


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


def test_names_the_line_that_widens_where_no_argument_is_wide() -> None:
    seen = computing(f64=50, f32=50)
    assert seen.program is not None
    line = Place(function="scale", file="/src/model.py", line=12, share=0.8)
    program = replace(seen.program, wide_places=(line,))
    outcome = dtype.check(replace(seen, program=program))
    assert outcome.summary == (
        "50% of the step's floating-point elements are float64, "
        "though no argument is: 80% of them in scale (src/model.py:12)"
    )
    assert ("float64 in scale", "src/model.py:12") in [
        (fact.name, fact.source) for fact in outcome.evidence
    ]


def test_a_script_is_told_the_line_to_change() -> None:
    seen = computing(f64=50, f32=50)
    assert seen.program is not None
    line = Place(function="scale", file="/src/model.py", line=12, share=0.8)
    program = replace(seen.program, wide_places=(line,))
    target = replace(seen.target, kind="script", workload=None)
    script = replace(seen, program=program, target=target)
    outcome = dtype.check(script)
    assert_sound(outcome, script)
    assert "src/model.py:12" in outcome.fixes[1].how


def exact(share: float, backend: Backend | None, **environment: str) -> Observation:
    """The healthy run, as if such a share of its products were computed exactly."""
    seen = recorded("healthy")
    assert seen.program is not None
    product = Layer(
        kind="product",
        function="f",
        file="/src/model.py",
        line=1,
        written=1,
        executed=1,
        flops=share,
        rows=1,
        inputs=1,
        outputs=1,
        dtype="f32",
        precision="HIGHEST",
    )
    layers = (product, replace(product, flops=1 - share, precision="DEFAULT"))
    program = replace(seen.program, layers=layers)
    return replace(seen, program=program, backend=backend, environment=environment)


def test_needless_precision_is_a_hint_on_an_accelerator_made_by_hand() -> None:
    seen = exact(0.5, GPU)
    outcome = dtype.check(seen)
    assert outcome.kind == "hint" and "higher precision than the default" in outcome.summary
    assert_sound(outcome, seen)
    assert "jax_default_matmul_precision" in outcome.fixes[0].how
    assert "needless" not in dtype.check(exact(0.1, GPU)).summary


def test_needless_precision_costs_a_cpu_nothing() -> None:
    assert dtype.check(exact(1.0, recorded("healthy").backend)).kind == "ok"
    assert dtype.check(exact(1.0, None)).kind == "ok"


def test_a_variable_that_asks_for_precision_is_removed() -> None:
    seen = exact(1.0, GPU, JAX_DEFAULT_MATMUL_PRECISION="highest")
    change = dtype.check(seen).fixes[0].change
    assert change is not None and change.env == {"JAX_DEFAULT_MATMUL_PRECISION": None}


def half(kind: str, *flags: str) -> Observation:
    """The healthy run in half precision on a CPU with these instruction sets."""
    seen = computing(bf16=900, f32=100)
    assert seen.target.workload is not None
    training = replace(seen.target.workload.training, dtype=kind)
    workload = replace(seen.target.workload, training=training)
    host = replace(seen.host, cpu_flags=flags, architecture="x86_64")
    return replace(seen, host=host, target=replace(seen.target, workload=workload))


@pytest.mark.parametrize("kind", ["bfloat16", "mixed"])
def test_half_precision_that_a_cpu_must_emulate_is_tried_in_float32(kind: str) -> None:
    seen = half(kind, "avx2", "avx512f")
    outcome = dtype.check(seen)
    assert outcome.kind == "hint" and outcome.gain is None
    assert_sound(outcome, seen)
    assert outcome.fixes[0].how == '[training] dtype = "float32"'


@pytest.mark.parametrize("flag", ["amx_bf16", "avx512_bf16"])
def test_half_precision_that_a_cpu_has_is_well(flag: str) -> None:
    assert dtype.check(half("mixed", "avx2", flag)).kind == "ok"


def test_half_precision_of_a_script_or_another_cpu() -> None:
    seen = half("mixed", "avx2")
    script = replace(seen, target=replace(seen.target, kind="script", workload=None))
    assert_sound(dtype.check(script), script)
    arm = replace(seen, host=replace(seen.host, architecture="aarch64"))
    assert dtype.check(arm).kind == "ok"
    assert dtype.check(replace(seen, backend=None)).kind == "ok"


@given(st.floats(0, 1e4), st.floats(0, 1e4), st.integers(0, 100))
def test_estimates_are_in_order(time_ms: float, busy_ms: float, wide: int) -> None:
    seen = computing(f64=wide, f32=100 - wide)
    assert seen.steps is not None
    steps = replace(seen.steps, time_ms=time_ms, device_busy_ms=busy_ms)
    seen = replace(seen, steps=steps)
    outcome = dtype.check(seen)
    if outcome.kind == "issue":
        target = replace(seen.target, kind="script", workload=None)
        assert_sound(outcome, replace(seen, target=target))


def test_wide_numbers_beside_narrow_products_have_no_sure_gain() -> None:
    seen = recorded("double_precision")
    assert seen.program is not None
    narrow = tuple(replace(layer, dtype="f32") for layer in seen.program.layers)
    cheap = dtype.check(replace(seen, program=replace(seen.program, layers=narrow))).gain
    whole = dtype.check(seen).gain
    assert cheap is not None and whole is not None
    assert cheap.low == 1.0 < whole.low
    assert cheap.speedup == whole.speedup
