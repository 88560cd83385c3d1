"""From the slices of live pairs to a gain with an honest interval."""

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from scipy.special import ndtri, stdtrit

from perfdoctor.schema.fix import Gain

TRIM = 0.2
LOOKS = 3
"""How often a trial may look at its result before it stops; the interval pays for all looks."""
LEVEL = 1 - 0.05 / LOOKS / 2
"""Quantile of a two-sided 95 % interval, Bonferroni over the looks."""
LAUNCH_SD = 0.03
"""Standard deviation of the log ratio of two identical live processes, between launches.

Measured by tests/benchmarks/launch_noise.py, see its saved results.
"""


def trimmed_mean(values: Sequence[float]) -> tuple[float, float, int]:
    """The 20 %-trimmed mean, its standard error (Yuen 1974), and the degrees of freedom."""
    ordered = sorted(values)
    cut = int(TRIM * len(ordered))
    kept = ordered[cut : len(ordered) - cut]
    winsorised = [kept[0]] * cut + kept + [kept[-1]] * cut
    if len(kept) < 2:
        return fmean(kept), math.inf, 1
    error = stdev(winsorised) * math.sqrt(len(ordered) - 1)
    error /= math.sqrt(len(kept) * (len(kept) - 1))
    return fmean(kept), error, len(kept) - 1


def quantile(df: float = math.inf) -> float:
    """Of Student's t (the normal distribution without `df`), at the level of all looks."""
    return float(ndtri(LEVEL) if math.isinf(df) else stdtrit(df, LEVEL))


def gain_of(pairs: Sequence[Sequence[float]]) -> Gain:
    """The gain that pairs of live processes show.

    `pairs`: for each pair, the log ratios of throughput, changed over unchanged, slice by slice.
    A pair is one estimate; beside the noise of its slices it carries that of its launch.
    """
    estimates = [trimmed_mean(slices) for slices in pairs]
    count = len(estimates)
    log_ratio = fmean(estimate for estimate, _, _ in estimates)
    within = sum((quantile(df) * error) ** 2 for _, error, df in estimates)
    between = count * (quantile() * LAUNCH_SD) ** 2
    half = math.sqrt(within + between) / count
    return Gain(
        speedup=math.exp(log_ratio),
        low=math.exp(log_ratio - half),
        high=math.exp(log_ratio + half),
        basis="measured",
    )


def clear(gain: Gain, min_gain: float) -> bool:
    """Whether more pairs could hardly change the answer."""
    return gain.low >= 1 + min_gain or gain.high < 1 + min_gain
