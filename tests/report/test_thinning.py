from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from perfdoctor.report.thinning import evenly, extremes, longest_each
from perfdoctor.schema.figures import Span

times = st.floats(0, 1000, allow_nan=False)


@st.composite
def spans(draw: st.DrawFn) -> list[Span]:
    found = draw(st.lists(st.tuples(times, st.floats(0, 50)), max_size=60))
    return [Span("etl", begin, begin + length) for begin, length in sorted(found)]


def lengths(several: Sequence[Span]) -> list[float]:
    return [each.end_ms - each.start_ms for each in several]


@given(spans(), st.integers(1, 40))
def test_no_more_stay_than_wanted_and_the_longest_is_among_them(
    several: list[Span], most: int
) -> None:
    kept = longest_each(several, 0.0, 1000.0, most)
    assert len(kept) <= most
    assert all(each in several for each in kept)
    assert kept == sorted(kept, key=lambda each: each.start_ms)
    if several:
        assert max(lengths(kept)) == max(lengths(several))


@given(spans())
def test_few_spans_all_stay(several: list[Span]) -> None:
    assert longest_each(several, 0.0, 1000.0, 60) == several


def test_each_piece_of_the_time_keeps_its_longest() -> None:
    several = [Span("etl", n / 10, n / 10 + (0.09 if n % 10 == 3 else 0.01)) for n in range(100)]
    assert longest_each(several, 0.0, 10.0, 10) == several[3::10]


def test_spans_of_no_time_at_all_are_thinned_too() -> None:
    assert len(longest_each([Span("etl", 0.0, 0.0)] * 5, 0.0, 0.0, 2)) == 1


@given(st.lists(st.floats(allow_nan=False), max_size=200), st.integers(2, 50))
def test_extremes_keep_the_lowest_and_the_highest_in_order(values: list[float], most: int) -> None:
    kept = extremes(values, most, float)
    assert len(kept) <= max(most, 2)
    if values:
        assert (min(kept), max(kept)) == (min(values), max(values))
    rest = iter(values)
    assert all(any(each == other for other in rest) for each in kept)


@given(st.lists(st.integers(), max_size=200), st.integers(2, 50))
def test_every_nth_and_the_last(values: list[int], most: int) -> None:
    kept = evenly(values, most)
    assert len(kept) <= most
    assert kept[:1] == values[:1] and kept[-1:] == values[-1:]
