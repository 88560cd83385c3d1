from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from perfdoctor.observe.agent.periods import LONGEST, instances_of, middle, period_of

steps = st.lists(st.sampled_from("abc"), min_size=1, max_size=8)


@given(steps, st.integers(8, 20))
def test_what_repeats_has_a_period_that_divides_it(step: Sequence[str], times: int) -> None:
    period = period_of(list(step) * times)
    assert period is not None
    assert period <= len(step)


def test_an_evaluation_now_and_then_does_not_matter() -> None:
    sequence = [*"ab" * 20, "eval", *"ab" * 20]
    assert period_of(sequence) == 2


def test_nothing_repeats() -> None:
    assert period_of([str(number) for number in range(40)]) is None
    assert period_of(["a"]) is None
    assert instances_of([str(number) for number in range(40)], [0.0] * 40) == []


def test_a_step_that_is_too_long_is_none() -> None:
    step = [*"a" * LONGEST, "b"]
    assert period_of(step * 4) != LONGEST + 1


def test_a_step_begins_after_the_longest_gap() -> None:
    sequence = list("gggu" * 6)
    gaps = [5.0 if index % 4 == 0 else 0.1 for index in range(len(sequence))]
    assert instances_of(sequence, gaps) == [0, 4, 8, 12, 16, 20]
    shifted = [5.0 if index % 2 == 1 else 0.1 for index in range(len(sequence))]
    assert instances_of(list("ab" * 12), shifted) == list(range(1, 23, 2))


def test_a_step_ends_with_what_is_called_most_seldom() -> None:
    sequence = list("gggu" * 6)
    gaps = [5.0 if index % 4 == 2 else 0.1 for index in range(len(sequence))]
    assert instances_of(sequence, gaps) == [0, 4, 8, 12, 16, 20]


def test_steps_around_something_else() -> None:
    sequence = [*"ab" * 5, "eval", *"ab" * 10]
    gaps = [1.0 if each == "a" else 0.0 for each in sequence]
    assert instances_of(sequence, gaps) == [0, 2, 4, 6, 8, *range(11, 31, 2)]


@given(st.lists(st.integers(), min_size=1))
def test_the_middle_is_one_of_them(values: Sequence[int]) -> None:
    assert middle(values) in values
