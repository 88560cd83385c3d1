"""From the slices of live pairs to a gain with an honest interval."""

import math
from collections.abc import Sequence
from itertools import cycle, islice
from statistics import fmean, stdev
from typing import Literal

from scipy.special import ndtri, stdtrit

from perfdoctor.schema.fix import Gain

TRIM = 0.2
"""The share of the values that a trimmed mean leaves out at each end."""
LOOKS = 3
"""How often a trial may look at its result before it stops; the interval pays for all looks."""
MOST_PAIRS = 6
"""Pairs after which the last look is taken at the latest. A choice."""
LEVEL = 1 - 0.05 / LOOKS / 2
"""Quantile of a two-sided 95 % interval, Bonferroni over the looks."""
FAITHFUL = 0.1
"""A replayed step may take so much more or less than the observed one; else what is gained on it
says nothing about the program. A choice, not a measurement."""
MOST_BLURRED = 3.0
"""The most, as a factor, that the error of a replay widens the interval of a gain: where that error
is as large as what a fix leaves of the step, the gain has no upper end, and a wider interval says
no more."""
UNLIKE = 0.45
"""By how much, as a logarithm, what a fix leaves of a replayed step is unlike what it leaves of the
program's, where it leaves next to nothing. Fitted by tests/benchmarks/known_gains.py to half of the
gains whose truth is known, so that 95 % of the intervals of those within a factor of two of it hold
it; of the other half 91 % of such gains' do, and 84 % of all."""
LAUNCH_SD = 0.02
"""Standard deviation of the log ratio of two identical live processes, between launches, as it is
typical of a program of which nothing is known yet."""
LAUNCH_DF = 2.0
"""How many pairs of the program's own that knowledge is worth: few, since programs differ.

Both are parameters of a scaled inverse chi-squared distribution of the variance, fitted by
tests/benchmarks/interval_coverage.py to saved pairs of programs with themselves, and to saved gains
whose truth is known. One degree of freedom fits as well, but one pair would say nothing then.
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
    """The quantile of Student's t (of the normal distribution without `df`), at the level of all
    looks.
    """
    return float(ndtri(LEVEL) if math.isinf(df) else stdtrit(df, LEVEL))


def gain_of(
    pairs: Sequence[Sequence[float]],
    basis: Literal["measured", "replayed", "estimated"] = "measured",
    emulation_error: float | None = 0.0,
) -> Gain:
    """The gain that pairs of live processes show.

    `pairs`: for each pair, the log ratios of throughput, changed over unchanged, slice by slice.
    A pair is one estimate; beside the noise of its slices it carries that of its launch.
    `emulation_error`: see `blurred`; the interval of a gain that is not of the program itself is
    wider by what `with_unlike` tells, too.
    """
    estimates = [trimmed_mean(slices) for slices in pairs]
    count = len(estimates)
    log_ratio = fmean(estimate for estimate, _, _ in estimates)
    within = sum((quantile(df) * error) ** 2 for _, error, df in estimates)
    launch_sd, launch_df = between_launches(estimates)
    between = count * (quantile(launch_df) * launch_sd) ** 2
    half, gain = math.sqrt(within + between) / count, math.exp(log_ratio)
    low, high = blurred(gain, emulation_error)
    down, up = math.log(gain / low) + half, math.log(high / gain) + half
    if basis != "measured":
        down, up = with_unlike(gain, down, up)
    return Gain(speedup=gain, low=gain * math.exp(-down), high=gain * math.exp(up), basis=basis)


def between_launches(estimates: Sequence[tuple[float, float, int]]) -> tuple[float, float]:
    """By how much launches of this program differ (the standard deviation of a pair's log ratio),
    and with how many degrees of freedom that is known: scale and degrees of freedom of the
    posterior of the variance, by which the mean follows Student's t.

    `estimates`: of each pair, see `trimmed_mean`. What their scatter exceeds that of their slices
    by is the program's own; LAUNCH_SD counts as LAUNCH_DF further pairs (Gelman et al., Bayesian
    Data Analysis, 3rd edition, section 2.6, where the variance is unknown).
    """
    own_df = len(estimates) - 1
    centre = fmean(estimate for estimate, _, _ in estimates)
    scatter = sum((estimate - centre) ** 2 for estimate, _, _ in estimates)
    of_slices = fmean(error**2 for _, error, _ in estimates)
    excess = max(0.0, scatter - own_df * of_slices) if own_df else 0.0
    df = LAUNCH_DF + own_df
    return math.sqrt((LAUNCH_DF * LAUNCH_SD**2 + excess) / df), df


def blurred(gain: float, emulation_error: float | None) -> tuple[float, float]:
    """Between what a gain on a replayed step lies on the program itself, lowest and highest.

    `emulation_error`: the logarithm of the replayed step's time over the observed one's; None: it
    could not be told, and may be as large as it is allowed to be.

    What the replay has too much, or too little, may belong to what the fix leaves, or to what it
    takes away; of the latter, at most as much as that is itself. So a fix that takes little away
    gains little, and one that takes nearly all away may gain far more, or far less. With the
    replayed step's time as the unit, `left` is what remains of it after the fix.
    """
    if emulation_error is None:
        return gain / (1 + FAITHFUL), gain * (1 + FAITHFUL)
    observed, left = math.exp(-emulation_error), 1 / gain
    excess = 1 - observed
    of_the_fix = math.copysign(min(abs(excess), abs(1 - left)), excess)
    lefts = [max(left / MOST_BLURRED, left - excess + each) for each in (0.0, of_the_fix)]
    gains = [observed / each for each in lefts]
    return min(gain, *gains), max(gain, *gains)


def with_unlike(
    gain: float, down: float, up: float, at_most: float = UNLIKE
) -> tuple[float, float]:
    """How far down and up an interval of a gain on a replayed step reaches, as logarithms, with
    what the program's gain differs by since the steps that are left are not alike. The more a fix
    leaves, the more of that is in the step before, too, and in their ratio it is none.

    `down`, `up`: how far it reaches without that, which has nothing to do with it; `at_most`: what
    there is of it where a fix leaves next to nothing.
    """
    more = at_most * max(0.0, 1 - 1 / gain)
    return math.hypot(down, more), math.hypot(up, more)


def between_both(least: Gain, most: Gain) -> Gain:
    """The gain of a fix that was measured in two ways, of which nobody knows the right one: the
    interval holds both, and the gain is the middle of the two by their logarithms.
    """
    if most.speedup <= least.speedup * (1 + FAITHFUL):
        return least
    middle = math.sqrt(least.speedup * most.speedup)
    return Gain(speedup=middle, low=least.low, high=most.high, basis="estimated")


def clear(gain: Gain, min_gain: float) -> bool:
    """Whether more pairs could hardly change the answer."""
    return gain.low >= 1 + min_gain or gain.high < 1 + min_gain


def last_look(
    pairs: Sequence[Sequence[float]],
    min_gain: float,
    basis: Literal["measured", "replayed", "estimated"] = "measured",
    emulation_error: float | None = 0.0,
) -> int:
    """After how many pairs in all the last look is worth it: as many as make the answer clear if
    further ones scatter like these; where MOST_PAIRS do not, as few as LOOKS.
    """

    def if_alike(count: int) -> Gain:
        return gain_of(list(islice(cycle(pairs), count)), basis, emulation_error)

    counts = range(LOOKS, MOST_PAIRS + 1)
    return next((n for n in counts if clear(if_alike(n), min_gain)), LOOKS)
