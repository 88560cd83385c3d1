"""What looks at a stack tell."""

import types

import pytest

from perfdoctor.observe.agent.looks import Looks, eager_of, reads_of, short_steps_of, steps_of
from perfdoctor.schema.run import Place


def code_of(name: str) -> types.CodeType:
    """Of a function of this name."""
    return compile("", "/src/train.py", "exec").replace(co_name=name, co_qualname=name)


def looks_of(*rows: tuple[str, int, int, int]) -> Looks:
    """Functions with the looks that saw them, their calls, and how deep they are."""
    looks = Looks(count=100, passed_s=2.0)
    for name, within, anew, depth in rows:
        code = code_of(name)
        looks.within[code], looks.anew[code], looks.depth[code] = within, anew, depth
        looks.at_work[code] = within // 10 if name == "gather" else within
    return looks


def test_the_outermost_function_that_is_called_anew_is_the_step() -> None:
    looks = looks_of(
        ("layer", 80, 40, 3), ("main", 100, 0, 0), ("step", 90, 20, 1), ("<listcomp>", 90, 20, 1)
    )
    assert [code.co_name for code in steps_of(looks)] == ["step", "layer"]


def test_a_call_that_is_over_before_the_next_look_is_not_timed() -> None:
    assert steps_of(looks_of(("helper", 21, 20, 1))) == []
    assert steps_of(looks_of(("once", 100, 1, 1))) == []


def test_a_function_in_which_most_of_the_time_passes_is_worth_closer_looks() -> None:
    looks = looks_of(("helper", 21, 20, 2), ("step", 90, 80, 1), ("gather", 90, 80, 0))
    assert steps_of(looks) == []
    assert [code.co_name for code in short_steps_of(looks)] == ["step"]


def test_a_function_that_waits_for_others_dispatches_nothing() -> None:
    assert steps_of(looks_of(("gather", 90, 10, 1))) == []


def test_elements_that_are_taken_out_to_be_read_are_told_by_their_function() -> None:
    looks = looks_of(("step", 90, 20, 1))
    take, read, slices = (
        ("step", "/src/train.py", 8),
        ("step", "/src/train.py", 9),
        ("cell", "", 3),
    )
    looks.elements.update({take: 50, read: 10, slices: 20})
    assert reads_of(looks) is None  # nothing is read: a loop over the steps of a sequence, say
    looks.reading[read] = 10
    assert reads_of(looks) == Place(function="step", file="/src/train.py", line=8, share=0.6)
    looks.elements[read] = looks.reading[read] = 70
    assert reads_of(looks) is None  # a wait for what single operations compute


def test_a_call_takes_its_share_of_the_time_between_two() -> None:
    looks = looks_of(("step", 90, 20, 1))
    eager = eager_of(steps_of(looks)[0], looks)
    assert eager.share == 0.9
    assert eager.call_ms == pytest.approx(90.0)
