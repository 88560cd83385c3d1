"""When a trace costs more than it will still tell."""

import pytest

from perfdoctor.observe.agent.trace_budget import GROWN_BYTES, MOST_BYTES, TRACE_BYTES, ends_early


def ended(grown: int, taken: int, passed_s: float, usual: bool = True, leaks: bool = False) -> bool:
    """Whether so long a trace ends, of a program that has plenty of memory left."""
    return ends_early(grown, taken, 100 * GROWN_BYTES, passed_s, usual=usual, leaks=leaks)


def test_a_trace_of_many_events_is_ended_after_a_second_unless_it_showed_too_few_steps() -> None:
    many = TRACE_BYTES + 1
    assert ended(many, many, 1.1)
    assert not ended(TRACE_BYTES, TRACE_BYTES, 1.9)
    assert not ended(many, many, 0.5)
    assert not ended(many, many, 1.1, usual=False)


def test_a_trace_of_very_many_events_is_ended_once_it_holds_some_steps() -> None:
    def ended(taken: int, passed_s: float, usual: bool = True) -> bool:
        plenty = 100 * MOST_BYTES
        return ends_early(taken, taken, plenty, passed_s, usual=usual, leaks=True, enough_s=0.1)

    assert ended(MOST_BYTES + 1, 0.2)
    assert not ended(MOST_BYTES + 1, 0.1)
    assert not ended(MOST_BYTES, 0.8)
    assert not ended(MOST_BYTES + 1, 0.8, usual=False)


def test_a_heap_that_grows_in_gaps_ends_a_trace_unless_arrays_grow_too() -> None:
    large = GROWN_BYTES + 1
    assert ended(large, 0, 1.1)
    assert not ended(GROWN_BYTES, 0, 1.9)
    assert not ended(large, 0, 0.5)
    assert not ended(large, 0, 1.1, usual=False)
    assert not ended(large, 0, 1.9, leaks=True)


@pytest.mark.parametrize("usual", [True, False])
def test_a_trace_that_takes_a_quarter_of_the_memory_left_is_ended_at_once(usual: bool) -> None:
    little = TRACE_BYTES
    assert ends_early(little // 4 + 1, 0, little, 0.1, usual=usual, leaks=True)
    assert not ends_early(little // 4, 0, little, 0.1, usual=usual, leaks=True)
