"""A line, literally."""

import re

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from perfdoctor.listener.line import Collected, Line

FULL = Line(
    time=0.0,
    iteration=30,
    iterations=10,
    etl_ms=0.1,
    iteration_ms=17.2,
    samples_per_s=588.2,
    batches_per_s=58.8,
    score=0.7229,
    collections=(
        Collected(generation=0, count=2, total_ms=0.3),
        Collected(generation=2, count=1, total_ms=24.0),
    ),
    compiles=0,
)


def test_it_is_the_guides_line() -> None:
    assert str(FULL) == (
        "ETL: 0.1 ms; iteration 30; iteration time: 17.2 ms; samples/sec: 588.2; "
        "batches/sec: 58.8; score: 0.7229; GC: [gen0: 2 (0.3 ms)], [gen2: 1 (24 ms)]; compiles: 0;"
    )


def test_what_is_not_known_is_left_out_and_no_collection_is_said() -> None:
    line = msgspec.structs.replace(FULL, samples_per_s=None, score=None, collections=())
    assert str(line) == (
        "ETL: 0.1 ms; iteration 30; iteration time: 17.2 ms; batches/sec: 58.8; "
        "GC: none; compiles: 0;"
    )


numbers = st.floats(0, 1e12)


@given(numbers, numbers, numbers, st.floats(), st.integers(0, 10**9))
def test_any_numbers_make_one_line_that_can_be_read(
    etl_ms: float, iteration_ms: float, rate: float, score: float, iteration: int
) -> None:
    line = msgspec.structs.replace(
        FULL,
        etl_ms=etl_ms,
        iteration_ms=iteration_ms,
        batches_per_s=rate,
        score=score,
        iteration=iteration,
    )
    found = re.fullmatch(
        r"ETL: [\d.]+ ms; iteration (\d+); iteration time: [\d.]+ ms; samples/sec: [\d.]+; "
        r"batches/sec: [\d.]+; score: (\S+); GC: .*; compiles: \d+;",
        str(line),
    )
    assert found is not None and int(found[1]) == iteration
    float(found[2])
