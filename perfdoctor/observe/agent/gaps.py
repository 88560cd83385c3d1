"""The usual time between calls, and in them."""

from collections.abc import Sequence
from statistics import fmean, median

from perfdoctor.observe.agent.calls import Probed
from perfdoctor.observe.agent.span import OUTLYING

TRIM = 0.2
"""The share of the gaps between calls that is left out at each end, as in all that perfdoctor
times."""


def usual_gaps(gaps: Sequence[tuple[Probed, Probed]]) -> list[tuple[Probed, Probed]]:
    """The gaps between two calls that hold nothing special, without the longest and the shortest: a
    thread that waits for a core, or a log, makes few of them long.
    """

    def length_ns(gap: tuple[Probed, Probed]) -> int:
        return gap[1].begin_ns - gap[0].end_ns

    ordered = sorted(gaps, key=length_ns)
    usual = length_ns(ordered[len(ordered) // 2]) if ordered else 0
    fair = [gap for gap in ordered if length_ns(gap) <= max(OUTLYING * usual, usual + 1e6)]
    cut = int(TRIM * len(fair))
    return fair[cut : len(fair) - cut]


def without_outliers(values_ns: Sequence[int]) -> list[int]:
    """Without what is far above the median: some of the calls may compile."""
    most_ns = OUTLYING * median(values_ns)
    return [each for each in values_ns if each <= most_ns]


def mean_ms(values_ns: Sequence[float]) -> float:
    """0 of none."""
    return max(0.0, fmean(values_ns) / 1e6) if values_ns else 0.0
