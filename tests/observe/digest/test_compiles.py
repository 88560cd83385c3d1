import pytest

from perfdoctor.observe.digest.compiles import compiles_of, tracing_of
from perfdoctor.schema.recording import CompileEvent, Recording

S = 1_000_000_000
TRACE = "jaxpr_trace_duration"
LOWER = "jaxpr_to_mlir_module_duration"
COMPILE = "backend_compile_duration"


def event(phase: str, function: str, seconds: float, end_s: float) -> CompileEvent:
    return CompileEvent(
        phase=phase, function=function, seconds=seconds, end_ns=5 * S + round(end_s * S)
    )


def recording(*events: CompileEvent, **reasons: str) -> Recording:
    return Recording(start_ns=5 * S, compiles=list(events), reasons=reasons)


def test_phases_of_one_function_are_added_up() -> None:
    (found,) = compiles_of(
        recording(
            event(TRACE, "step", 0.1, 1.0),
            event(LOWER, "step", 0.2, 1.5),
            event(COMPILE, "step", 1.0, 2.5),
        )
    )
    assert found.function == "step"
    assert found.seconds == pytest.approx(1.3)
    assert found.at_s == pytest.approx(2.5)


def test_each_compilation_of_a_function_counts_for_itself() -> None:
    found = compiles_of(
        recording(
            event(TRACE, "step", 0.1, 1.0),
            event(COMPILE, "step", 1.0, 2.0),
            event(COMPILE, "step", 3.0, 6.0),
        )
    )
    assert [compile.seconds for compile in found] == pytest.approx([1.1, 3.0])


def test_functions_that_compile_at_once_are_told_apart() -> None:
    found = compiles_of(
        recording(
            event(TRACE, "a", 0.1, 1.0),
            event(TRACE, "b", 0.2, 1.1),
            event(COMPILE, "b", 2.0, 3.1),
            event(COMPILE, "a", 4.0, 5.0),
        )
    )
    assert [compile.function for compile in found] == ["b", "a"]
    assert [compile.seconds for compile in found] == pytest.approx([2.2, 4.1])


def test_what_is_only_traced_is_no_compilation() -> None:
    assert compiles_of(recording(event(TRACE, "inner", 0.1, 1.0))) == ()


def test_the_reason_goes_with_its_function() -> None:
    found = compiles_of(
        recording(
            event(COMPILE, "step", 1.0, 1.0),
            event(COMPILE, "init", 1.0, 2.0),
            step="different input types",
        )
    )
    assert [compile.reason for compile in found] == ["different input types", None]


def test_nothing_compiled() -> None:
    assert compiles_of(recording()) == ()


def test_the_part_of_xla_is_kept_apart() -> None:
    (found,) = compiles_of(
        recording(event(TRACE, "step", 0.5, 1.0), event(COMPILE, "step", 2.0, 3.0))
    )
    assert (found.seconds, found.backend_s) == (2.5, 2.0)


def test_tracing_lasts_as_long_as_its_phase() -> None:
    run = recording(event(TRACE, "step", 0.5, 1.0), event(COMPILE, "step", 2.0, 3.0))
    assert tracing_of(run).tolist() == [[5 * S + S // 2, 6 * S]]


def test_a_function_traced_inside_another_adds_nothing() -> None:
    run = recording(event(TRACE, "inner", 0.2, 0.8), event(TRACE, "step", 1.0, 1.0))
    assert tracing_of(run).tolist() == [[5 * S, 6 * S]]


def test_no_tracing_where_nothing_was_compiled() -> None:
    assert tracing_of(recording()).shape == (0, 2)
