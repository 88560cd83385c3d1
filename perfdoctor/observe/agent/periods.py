"""From the jitted calls of a thread to its steps: the shortest sequence of calls that repeats."""

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

LONGEST = 64
"""Calls of a step, at most."""
REPEATS, NEARLY, ALIKE = 0.75, 0.1, 0.05
"""REPEATS: the share of the calls that must have the same function a period before, where an
evaluation or a log's helper comes in between now and then. NEARLY: of all periods whose share is by
so little smaller than the best one's, the shortest is right. ALIKE: so is one that is still
shorter, and explains as much but for this share of the calls."""


def period_of(sequence: Sequence[Hashable]) -> int | None:
    """The length of the shortest sequence that repeats; None if none does."""
    periods = range(1, min(LONGEST, len(sequence) // 2) + 1)
    same = {period: share_repeated(sequence, period) for period in periods}
    enough = max(REPEATS, max(same.values(), default=0.0) - NEARLY)
    found = next((period for period in periods if same[period] >= enough), None)
    if found is None:
        return None
    alike = max(REPEATS, same[found] - ALIKE)
    return next(period for period in periods if same[period] >= alike)


def share_repeated(sequence: Sequence[Hashable], period: int) -> float:
    """The share of the calls after the first period that are as the call a period before."""
    pairs = list(zip(sequence, sequence[period:], strict=False))
    return sum(before == after for before, after in pairs) / len(pairs)


def repeats(sequence: Sequence[Hashable], period: int) -> bool:
    """Whether a period that was found in a longer part of the same calls is that of these, too."""
    return len(sequence) >= 2 * period and share_repeated(sequence, period) >= REPEATS


def instances_of(
    sequence: Sequence[Hashable], gaps: Sequence[float], period: int | None = None
) -> list[int]:
    """The places where steps begin in a sequence of calls, of which a step has `period` (None: as
    they tell).

    `gaps`: before each call. Of the rotations of what repeats, a step is one that ends with a call
    which it makes the most seldom, so that its begin can be told while it runs; and of these the
    one that begins after the longest gap: there the loop fetches its batch.
    """
    period = period or period_of(sequence)
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
