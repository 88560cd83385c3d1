"""How long a step takes, and whose calls make it."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfdoctor.injection.calls import Function
from perfdoctor.observe.agent.callers import outermost
from perfdoctor.observe.agent.span import rare_ms, span_of
from perfdoctor.observe.agent.timing import Timed
from tests.observe.agent.test_roles import batches


def timed(spans: Sequence[tuple[int, int]], thread: int = 1) -> list[Timed]:
    """Calls of one function."""
    function = Function(batches)
    return [Timed(thread, function, begin, end) for begin, end in spans]


def test_a_call_inside_of_another_one_is_part_of_it() -> None:
    calls = timed([(3, 4), (2, 6), (7, 8), (2, 3), (8, 9)])
    assert [(call.begin_ns, call.end_ns) for call in outermost(calls)] == [(2, 6), (7, 8), (8, 9)]


SPANS = st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)).map(lambda pair: sorted(pair)))


@given(SPANS)
def test_outermost_calls_do_not_overlap_and_hold_all_others(spans: list[list[int]]) -> None:
    calls = timed([(begin, end) for begin, end in spans])
    found = outermost(calls)
    assert all(before.end_ns <= after.begin_ns for before, after in pairwise(found))
    starts = {each.begin_ns for each in found}
    ends = [each.end_ns for each in found]
    for call in calls:
        assert call.begin_ns in starts or any(call.begin_ns < end for end in ends)


def test_the_time_of_a_step() -> None:
    calls = timed([(n * 1_000_000 + 1, n * 1_000_000 + 500) for n in range(50)])
    span = span_of(calls, 0, 50_000_000)
    assert span is not None
    assert (span.step_ms, span.steps, span.covered, span.threads) == (1.0, 50, 1.0, 1)


def test_calls_that_come_while_the_last_result_is_waited_for_are_not_counted() -> None:
    calls = timed([(n * 1_000_000 + 1, n * 1_000_000 + 500) for n in range(60)])
    span = span_of(calls, 0, 50_000_000)
    assert span is not None
    assert (span.step_ms, span.steps) == (1.0, 50)


def test_steps_of_several_threads_are_counted_together() -> None:
    one, other = (timed([(n * 1000, n * 1000 + 9) for n in range(20)], each) for each in (1, 2))
    span = span_of([*one, *other], 0, 20_000)
    assert span is not None
    assert (span.threads, span.steps, span.step_ms) == (2, 40, 20_000 / 40 / 1e6)


def test_a_thread_that_calls_now_and_then_is_no_other_caller() -> None:
    span = span_of([*timed([(n, n + 1) for n in range(100)]), *timed([(5, 6)], 2)], 0, 100)
    assert span is not None
    assert (span.threads, span.steps) == (1, 100)


def test_without_an_end_there_is_no_span() -> None:
    assert span_of(timed([(1, 2), (3, 4)]), 0, 0) is None
    assert span_of([], 0, 5) is None


def test_what_a_step_takes_outside_of_its_calls() -> None:
    calls = timed([(n * 1_000_000, n * 1_000_000 + 250_000) for n in range(51)])
    span = span_of(calls, 0, 51_000_000)
    assert span is not None
    assert span.between_ms == pytest.approx(0.75 * 50 / 51)


def test_what_lies_before_the_time_is_none_of_it() -> None:
    """The first call has compiled for long, and the time begins when it was computed."""
    assert rare_ms([0, 500, 501, 502, 503], 499, 509) == 0.0


@given(
    st.lists(st.integers(1, 1000), min_size=2, max_size=20),
    st.integers(0, 2000),
    st.integers(1, 2000),
)
def test_what_is_done_now_and_then_is_less_than_a_step(
    lengths: list[int], begin_ns: int, took_ns: int
) -> None:
    begins = [sum(lengths[:place]) for place in range(len(lengths))]
    rare_ns = rare_ms(begins, begin_ns, begin_ns + took_ns) * 1e6
    assert 0 <= rare_ns < took_ns / len(begins)
