"""What is told of a step's calls."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfdoctor.observe.agent.compilation import COMPILED
from perfdoctor.observe.agent.telling import (
    compiled,
    compiling_ms,
    covered_ms,
    first_times,
    reuses_memory,
)
from perfdoctor.schema.recording import CompileEvent


@pytest.mark.parametrize(
    ("faults", "step_ms", "reused"),
    [(0.0, 1.0, True), (230.0, 5.4, True), (1462.0, 5.6, False), (31_000.0, 74.0, False)],
)
def test_memory_is_reused_where_steps_touch_few_new_pages(
    faults: float, step_ms: float, reused: bool
) -> None:
    assert reuses_memory(faults, step_ms, {"XLA_FLAGS": ""}) is reused
    assert not reuses_memory(faults, step_ms, {"MALLOC_MMAP_THRESHOLD_": "65536"})


instants = st.integers(0, 50)


@given(spans=st.lists(st.tuples(instants, instants)), within=st.tuples(instants, instants))
def test_instants_in_several_spans_count_once(
    spans: list[tuple[int, int]], within: tuple[int, int]
) -> None:
    found = {n for begin, end in spans for n in range(begin, end) if within[0] <= n < within[1]}
    assert covered_ms(spans, *within) == pytest.approx(len(found) / 1e6)


def compiling(*ends: tuple[str, int]) -> list[CompileEvent]:
    """Functions, and when the compilation of each ended, in milliseconds; each took one, and was
    traced for one before.
    """
    return [
        CompileEvent(phase=phase, function=function, seconds=1e-3, end_ns=round((at + lag) * 1e6))
        for function, at in ends
        for phase, lag in (("jaxpr_trace_duration", -1), (COMPILED, 0))
    ]


def test_the_first_compilation_of_a_function_is_none_of_each_step() -> None:
    """As of an evaluation that is called for the first time while steps are timed."""
    window = round(5e6), round(100e6)
    events = compiling(("step", 3), ("evaluate", 20), ("step", 30), ("evaluate", 40))
    first = first_times(events, *window)
    assert [(each.function, each.phase == COMPILED) for each in first] == [
        ("evaluate", False),
        ("evaluate", True),
    ]
    assert compiled(events, *window) == 2
    assert compiling_ms(events, *window) == pytest.approx(6.0)
    assert compiling_ms(first, *window) == pytest.approx(2.0)
