import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from perfdoctor.observe.digest.intervals import (
    NOTHING,
    Intervals,
    complement,
    contains,
    intersection,
    total_ms,
    union,
)

Pairs = list[tuple[int, int]]
PAIRS = st.lists(st.tuples(st.integers(-20, 20), st.integers(-20, 20)), max_size=8)
EVERYWHERE = np.arange(-25, 25)


def instants(pairs: Pairs) -> set[int]:
    return {instant for start, end in pairs for instant in range(start, end)}


def members(intervals: Intervals) -> set[int]:
    return instants([(start, end) for start, end in intervals.tolist()])


def assert_normal(intervals: Intervals) -> None:
    """Sorted, not empty, and apart from each other."""
    assert intervals.dtype == np.int64
    assert intervals.shape[1] == 2
    assert (np.diff(intervals.ravel()) > 0).all()


@settings(deadline=None)
@given(PAIRS)
def test_union_has_the_instants_of_all_pairs(pairs: Pairs) -> None:
    found = union(pairs)
    assert_normal(found)
    assert members(found) == instants(pairs)


@settings(deadline=None)
@given(PAIRS)
def test_union_of_a_union_is_itself(pairs: Pairs) -> None:
    assert union(union(pairs)).tolist() == union(pairs).tolist()


@settings(deadline=None)
@given(PAIRS, PAIRS)
def test_intersection_has_the_instants_in_both(a: Pairs, b: Pairs) -> None:
    found = intersection(union(a), union(b))
    assert_normal(found)
    assert members(found) == instants(a) & instants(b)


@settings(deadline=None)
@given(PAIRS, PAIRS)
def test_complement_has_the_instants_that_the_first_lacks(a: Pairs, within: Pairs) -> None:
    found = complement(union(a), union(within))
    assert_normal(found)
    assert members(found) == instants(within) - instants(a)


@settings(deadline=None)
@given(PAIRS)
def test_total_is_the_number_of_instants(pairs: Pairs) -> None:
    assert total_ms(union(pairs)) == len(instants(pairs)) / 1e6


@settings(deadline=None)
@given(PAIRS)
def test_contains_is_membership(pairs: Pairs) -> None:
    inside = instants(pairs)
    found = contains(union(pairs), EVERYWHERE)
    assert found.tolist() == [instant in inside for instant in EVERYWHERE.tolist()]


def test_nanoseconds_since_1970_are_exact() -> None:
    start = 1_795_000_000_000_000_000
    found = intersection(union([(start, start + 3)]), union([(start + 1, start + 9)]))
    assert found.tolist() == [[start + 1, start + 3]]


def test_nothing_is_neutral() -> None:
    some = union([(1, 2)])
    assert len(union([])) == 0
    assert len(intersection(NOTHING, some)) == 0
    assert complement(NOTHING, some).tolist() == some.tolist()
    assert len(complement(some, NOTHING)) == 0
    assert total_ms(NOTHING) == 0
