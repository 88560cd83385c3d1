"""By what a call repeats another one."""

from collections.abc import Callable
from typing import Any

import jax
import pytest

from perfdoctor.injection.calls import Function
from perfdoctor.observe.agent.callers import MANY, jitted_anew, key_of


def made(count: int, lines: Callable[[], Callable[..., Any]]) -> list[Function]:
    """So many functions of the same lines of code."""
    return [Function(jax.jit(lines())) for _ in range(count)]


def step() -> Callable[..., Any]:
    return lambda x: x + 1


def layer() -> Callable[..., Any]:
    return lambda x: x * 2


@pytest.mark.parametrize(
    ("functions", "times", "is_anew"),
    [(3, 1, True), (2, 1, False), (4, 3, False), (MANY + 1, 3, True)],
    ids=["each called once", "two", "a few, in each step", "very many"],
)
def test_functions_that_are_made_anew_are_known_by_their_lines(
    functions: int, times: int, is_anew: bool
) -> None:
    anew, kept = made(functions, step), made(1, layer)[0]
    found = jitted_anew([*anew * times, *[kept] * 20])
    keys = {key_of(each, found) for each in anew}
    assert len(keys) == (1 if is_anew else functions)
    assert key_of(kept, found) == kept.number
