"""From the jitted calls of a thread to its steps: the shortest sequence of calls that repeats."""

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

LONGEST = 64
"""Calls of a step."""
REPEATS, NEARLY = 0.75, 0.1
"""Of the calls: so many at least have the same function a period before, where an evaluation or a
log's helper comes in between now and then; and of all periods for which nearly as many have as for
the best one, the shortest is right."""


def period_of(sequence: Sequence[Hashable]) -> int | None:
    """The length of the shortest sequence that repeats; None if none does."""
    periods = range(1, min(LONGEST, len(sequence) // 2) + 1)
    same = {period: share_repeated(sequence, period) for period in periods}
    enough = max(REPEATS, max(same.values(), default=0.0) - NEARLY)
    return next((period for period in periods if same[period] >= enough), None)


def share_repeated(sequence: Sequence[Hashable], period: int) -> float:
    """Of the calls after the first period, those that are as the call a period before."""
    pairs = list(zip(sequence, sequence[period:], strict=False))
    return sum(before == after for before, after in pairs) / len(pairs)


def instances_of(sequence: Sequence[Hashable], gaps: Sequence[float]) -> list[int]:
    """Where steps begin in a sequence of calls.

    `gaps`: before each call. Of the rotations of what repeats, a step is one that ends with a call
    which it makes the most seldom, so that its begin can be told while it runs; and of these the
    one that begins after the longest gap: there the loop fetches its batch.
    """
    period = period_of(sequence)
    if period is None:
        return []
    windows = [tuple(sequence[i : i + period]) for i in range(len(sequence) - period + 1)]
    often = Counter(windows)
    most = max(often.values())
    before: dict[Any, list[float]] = {}
    for window, gap in zip(windows, gaps, strict=False):
        before.setdefault(window, []).append(gap)
    rotations = [window for window, count in often.items() if count >= most / 2]
    rotations = [window for window in rotations if ends_rarely(window)] or rotations
    pattern = max(rotations, key=lambda window: middle(before[window]))
    found, index = [], 0
    while index < len(windows):
        if windows[index] == pattern:
            found.append(index)
            index += period
        else:
            index += 1
    return found


def ends_rarely(window: Sequence[Hashable]) -> bool:
    """Whether the last call is one of those that are made the most seldom."""
    often = Counter(window)
    return often[window[-1]] == min(often.values())


def middle(values: Sequence[float]) -> float:
    """The upper median."""
    return sorted(values)[len(values) // 2]
