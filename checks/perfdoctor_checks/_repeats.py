"""Functions that are compiled again, and what that takes of the program's time."""

import re
from collections import defaultdict
from itertools import pairwise

from perfdoctor import Compile, Steps
from perfdoctor_checks._explanations import explained
from perfdoctor_checks._limits import BURST_S, FEW, GOOD_PART, LEAST_SHARE, MOST_SLOWED

Repeats = dict[str, list[Compile]]
FRACTION = re.compile(r"-?\d+(?:\.\d+(?:e[-+]?\d+)?|e[-+]?\d+)")
"""A number of Python's that need not be whole: 0.5, 1.5e-07, 1e-05."""


def repeats_of(compiles: tuple[Compile, ...]) -> Repeats:
    """All compilations of each function but the first; control flow outside of any function is a
    matter of missing-jit.
    """
    found: defaultdict[str, list[Compile]] = defaultdict(list)
    own = [each for each in compiles if not each.is_control_flow]
    for each in sorted(own, key=lambda one: one.at_s):
        found[each.function].append(each)
    return {name: each[1:] for name, each in found.items() if len(each) > 1}


def keeps_coming(repeats: list[Compile]) -> bool:
    """Whether a function was compiled again so often that it will be once more; where the last time
    was for another value of a schedule, one less is enough.
    """
    return len(repeats) >= FEW or (
        len(repeats) == FEW - 1 and is_scheduled(repeats[-1].reason)  # JAX tells of the last one
    )


def is_scheduled(reason: str | None) -> bool:
    """Whether a fraction differs among the values that a function is compiled for: a rate, say. A
    whole number may be one of a few sizes or stages.
    """
    kind, words = explained(reason)
    old, _, new = words.partition(" -> ")
    olds, news = FRACTION.findall(old), FRACTION.findall(new)
    return kind in ("static", "value") and bool(olds and news) and olds != news


def inside(repeats: Repeats, steps: Steps) -> Repeats:
    """The repeats that ended in the window."""
    end_s = steps.began_s + steps.window_s
    chosen = {
        name: [one for one in each if steps.began_s <= one.at_s <= end_s]
        for name, each in repeats.items()
    }
    return {name: each for name, each in chosen.items() if each}


def recurring(compiles: tuple[Compile, ...], steps: Steps) -> Repeats:
    """Repeats in the window of functions that keep being compiled."""
    repeats = repeats_of(compiles)
    longest_burst_s = max(BURST_S, GOOD_PART * steps.window_s)
    return {
        name: each
        for name, each in inside(repeats, steps).items()
        if keeps_coming(repeats[name])
        and (name == steps.function or each[-1].at_s - each[0].at_s >= longest_burst_s)
        and spent_s(each, steps) >= LEAST_SHARE * steps.window_s
    }


def is_due(compiles: tuple[Compile, ...], steps: Steps) -> bool:
    """Whether a function is compiled again and again, but not in the window: this ended before the
    next time was due, by the longest of the gaps before it, or that came after it. Shapes that come
    back are compiled less and less often, so they are left to the window.
    """
    end_s = steps.began_s + steps.window_s
    for repeats in repeats_of(compiles).values():
        seen = [each for each in repeats if each.at_s <= end_s]
        if not keeps_coming(seen) or explained(repeats[-1].reason)[0] == "shape":
            continue
        times_s = [each.at_s for each in seen]
        longest_s = max(later - earlier for earlier, later in pairwise(times_s))
        if len(seen) < len(repeats) or end_s - times_s[-1] <= longest_s:
            return True
    return False


def spent_s(compiles: list[Compile], steps: Steps) -> float:
    """Seconds of the window that these compilations took."""
    return sum(min(each.seconds, each.at_s - steps.began_s) for each in compiles)


def share_lost(repeats: list[Compile], within: list[Compile], steps: Steps) -> float:
    """The share of the program's time without a trace that compiling a function again takes.

    As in the later half of its repeats before the window, if these go on as often in it, but for
    the trace. Else, as when they were a start's, as in the window itself.
    """
    before = [each for each in repeats if each.at_s <= steps.began_s]
    if len(before) > 2 * FEW:
        first, *later = before[len(before) // 2 :]
        span_s = max(later[-1].at_s - first.at_s, sum(each.seconds for each in later))
        if len(within) >= len(later) / span_s * steps.window_s / MOST_SLOWED:
            return sum(each.seconds for each in later) / span_s
    lost_s = spent_s(within, steps)
    rest_s = max(0.0, steps.window_s - lost_s) / steps.slowed
    return lost_s / (lost_s + rest_s) if lost_s > 0 else 0.0
