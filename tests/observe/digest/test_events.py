from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from perfdoctor.observe.digest.events import named, spans_of
from tests.observe.digest.made_up import thread


def test_spans_are_laid_beside_the_clock() -> None:
    start = 1_795_000_000_000_000_000
    found = spans_of([SimpleNamespace(start_ns=5.4, duration_ns=2.2)], start)
    assert found.tolist() == [[start + 5, start + 7]]


def test_events_of_a_name_are_kept_one_by_one() -> None:
    events = thread(("DevicePut", 12, 18), ("Other", 0, 1), ("DevicePut", 10, 20))
    assert named([events], "DevicePut".__eq__).tolist() == [[10, 20], [12, 18]]
    assert named([events], "H2D Dispatch".__eq__).shape == (0, 2)


PAIRS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)))


@given(PAIRS, PAIRS)
def test_spans_of_a_name_are_sorted_and_none_is_lost(
    one: list[tuple[int, int]], other: list[tuple[int, int]]
) -> None:
    threads = [thread(*(("DevicePut", *pair) for pair in pairs)) for pairs in (one, other)]
    found = named(threads, "DevicePut".__eq__)
    assert found.shape == (len(one) + len(other), 2)
    assert [tuple(pair) for pair in found.tolist()] == sorted(one + other)
