"""Which thread makes which calls, and by what a call repeats another one."""

from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from typing import TypeVar

from perfdoctor.injection.calls import Function
from perfdoctor.observe.agent.calls import Probed
from perfdoctor.observe.agent.timing import Timed

Made = TypeVar("Made", Timed, Probed)
"""A call, as it was timed or probed."""
MANY, FEWEST = 8, 3
"""Functions of one origin from which on they are taken for one that is jitted anew in each step;
from the smaller number on, if most of them are called but once."""
CALLER_SHARE = 0.1
"""A thread that makes fewer calls than this share of the busiest one's is no other caller."""


def key_of(function: Function, anew: Collection[Hashable]) -> Hashable:
    """What two calls have in common of which one repeats the other: the function, or its origin if
    it is jitted anew in each step.
    """
    return function.origin if function.origin in anew else function.number


def is_same(function: Function, key: Hashable) -> bool:
    """Whether a function is the one of such a key, or was made anew in its place."""
    return key in (function.number, function.origin)


def jitted_anew(functions: Sequence[Function]) -> frozenset[Hashable]:
    """The origins of functions that are jitted anew in each step; `functions`: call by call."""
    distinct = {each.number: each for each in functions}
    made = Counter(each.origin for each in distinct.values())
    called = Counter(each.origin for each in functions)
    return frozenset(
        origin
        for origin, count in made.items()
        if count > MANY or (count >= FEWEST and called[origin] < 2 * count)
    )


def outermost(calls: Sequence[Timed]) -> list[Timed]:
    """The calls without those that were made while another one was traced."""
    found: list[Timed] = []
    for call in sorted(calls, key=lambda each: (each.begin_ns, -each.end_ns)):
        if not found or call.begin_ns >= found[-1].end_ns:
            found.append(call)
    return found


def by_caller(calls: Sequence[Made]) -> list[list[Made]]:
    """The calls of each thread that makes its part of them, the busiest first."""
    threads: dict[int, list[Made]] = {}
    for call in calls:
        threads.setdefault(call.thread, []).append(call)
    ordered = sorted(threads.values(), key=len, reverse=True)
    return [each for each in ordered if len(each) >= CALLER_SHARE * len(ordered[0])]
