"""Tests that measure for minutes, or try one thing more in many ways: `pytest -m long` runs them.

`python -m tests.clinic.long_tests` keeps what they came to; CI runs the others.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Any, TypeVar

import pytest

LONG = pytest.mark.long
Case = TypeVar("Case")


def long_but(
    short: Collection[str], cases: Iterable[Case], name: Callable[[Case], str] = str
) -> list[Any]:
    """The cases of a parametrized test, of which all are long but those with these names."""
    named = [(name(each), each) for each in cases]
    assert set(short) <= {each for each, _ in named}
    return [
        pytest.param(each, id=its_name, marks=() if its_name in short else LONG)
        for its_name, each in named
    ]
