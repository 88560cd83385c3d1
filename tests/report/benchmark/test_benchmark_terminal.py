import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from perfdoctor.report.benchmark import markdown
from perfdoctor.report.benchmark.terminal import BLOCKS, program, render, sparkline
from perfdoctor.report.benchmark.words import COUNTED, cells, counting, scaled, sentence
from perfdoctor.schema.benchmark import Exact, Metric
from tests.bench.made import benchmark, launch
from tests.report.benchmark.benchmarks import compared

STEP_TIME = Metric(name="step_time", unit="ms", better="lower", value=5.0, low=4.9, high=5.1)
MEMORY = Metric(name="peak_memory", unit="bytes", better="lower", value=512 * 2.0**20)


def test_all_that_is_known_is_shown() -> None:
    found = benchmark(launch(), launch(steady=False), metrics=(MEMORY, STEP_TIME))
    text = render(replace(found, warnings=("1 of 2 launches never got steady",)))
    lines = text.splitlines()
    assert lines[0] == "perfdoctor 0.1.0 · bench train.py · cpu, 2 cores · jax 0.10.2"
    assert lines[2].split() == ["step", "time", "5", "ms", "4.9", "to", "5.1"]
    assert lines[3].split() == ["peak", "memory,", "host", "512", "MiB", "one", "run"]
    assert lines[5].split() == ["launch", "1", "▄▁█", "5", "ms"]
    assert lines[6].endswith("never steady")
    assert "7 compiles" in text and "program 0123456789abcdef" in text
    assert lines[-1] == " ! 1 of 2 launches never got steady"


def test_memory_is_told_in_a_unit_that_fits() -> None:
    small = replace(MEMORY, value=3.5 * 2**10, low=1024.0, high=2.0**21)
    assert cells(small) == ("3.5 KiB", "1 to 2,048")
    assert cells(replace(MEMORY, value=4.0)) == ("4 bytes", "one run")


def test_what_a_step_costs_is_that_of_all_its_programs() -> None:
    several = Exact(
        flops=1e9,
        bytes_accessed=2.0**21,
        temp_bytes=4,
        hlo="0123",
        compiles=7,
        dispatches=3.0,
        programs=3,
    )
    cost = "1e+09 FLOPs, 2 MiB accessed, 4 bytes temporary"
    assert program(several) == f"a step: {cost}, 3 dispatches; 7 compiles; program 0123"
    of_one = replace(several, programs=None)  # as an older version saved it
    assert program(of_one) == (
        f"a step: 3 dispatches; its largest program: {cost}; 7 compiles; program 0123"
    )


def test_a_verdict_says_by_which_threshold() -> None:
    assert sentence(compared()).endswith(", 5 pairs in 61 s, threshold 5%")


def test_of_a_script_it_is_told_that_a_wrapper_counts_the_calls() -> None:
    script = benchmark(launch(), metrics=(STEP_TIME,))
    workload = replace(script, target=replace(script.target, kind="workload"))
    assert script.target.kind == "script"
    assert (counting(script), counting(workload)) == (COUNTED, "")
    for render_it in (render, markdown.render):
        assert "counted by a wrapper around what jax.jit" in render_it(script)
        assert "wrapper" not in render_it(workload)


def test_a_number_that_was_seen_once_has_no_interval() -> None:
    assert cells(replace(STEP_TIME, low=None)) == ("5 ms", "one run")


@pytest.mark.parametrize(
    ("value", "unit", "told"),
    [(0.0123, "ms", "0.0123"), (12.34, "ms", "12.3"), (123456.0, "samples/s", "123,456")],
)
def test_numbers_are_short(value: float, unit: str, told: str) -> None:
    assert scaled(value, unit) == (told, unit)


@given(st.lists(st.floats(1e-3, 1e4), min_size=1, max_size=60))
def test_a_plot_has_a_block_for_each_value_in_their_order(values: list[float]) -> None:
    plot = sparkline(values)
    assert len(plot) == len(values)
    heights = [BLOCKS.index(block) for block in plot]
    for one, other in zip(range(len(values)), range(1, len(values)), strict=False):
        assert values[one] > values[other] or heights[one] <= heights[other]
