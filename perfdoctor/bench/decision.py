"""From the pairs of a comparison to a verdict that is wrong in at most ALPHA of all comparisons.

Each pair is a trio of fresh processes: the baseline, the baseline again, the candidate. It gives
two numbers, of which each is one observation: the candidate against the mean of both baselines (the
contrast), and one baseline against the other (the control), as differences of the logarithms of
their times. If all three launches scatter alike, with variance v, the contrast has variance 3/2 v
and the control 2 v; so both tell v, the control with a known mean of zero.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from scipy.special import stdtr, stdtrit

ALPHA = 0.01
"""The probability of a false alarm in one comparison, over all its looks and gated metrics: a
choice, one in a hundred."""
LOOKS = (3, 5, 8, 12, 16, 20)
"""Pairs after which the result is looked at."""
CONFIRMED_AFTER = 5
"""Pairs that a slowdown is to be seen in, where there is time. If one launch in four is 6 % slower
than the others, three pairs agree by chance in 0.5 % of all comparisons, five in 0.05 %."""
CONTRAST, CONTROL = 1.5, 2.0
"""The variances of the contrast and of the control, in multiples of that of one launch."""
POWER = 0.8
"""The probability with which a slowdown that is called visible would have been found: a choice, the
usual one of a test's design."""

Verdict = Literal["regressed", "pass", "improved"]


@dataclass(frozen=True)
class Estimate:
    """What the pairs say of one metric; changes and bounds are relative: 0.05 is 5 % slower."""

    pairs: int
    change: float
    low: float
    high: float
    """The interval of this look; together with those of all looks it holds with 1 - 2 ALPHA."""
    p: float
    """The probability of a change as large as this, or larger, if there were none."""
    control: float
    control_holds: bool
    """Whether the two baselines agree, as two launches of one program should."""
    visible: float
    """The smallest slowdown that so many pairs would have found in POWER of all cases."""


def spent(look: int, metrics: int) -> float:
    """The part of ALPHA that a look at one of the metrics may use: more the more it knows."""
    return ALPHA * LOOKS[look] / sum(LOOKS) / metrics


def estimate(
    contrasts: Sequence[float], controls: Sequence[float], look: int, metrics: int = 1
) -> Estimate:
    """The logarithms of ratios of times, one of each kind a pair, at one of the LOOKS."""
    count = len(contrasts)
    mean, control = fmean(contrasts), fmean(controls)
    alpha = spent(look, metrics)
    df = 2 * count - 1
    error = math.sqrt(CONTRAST / count * launch_variance(contrasts, controls))
    half = float(stdtrit(df, 1 - alpha)) * error
    own = sum((each - mean) ** 2 for each in contrasts) / CONTRAST
    about_its_mean = own + sum((c - control) ** 2 for c in controls) / CONTROL
    control_error = math.sqrt(CONTROL / count * about_its_mean / (df - 1))
    return Estimate(
        pairs=count,
        change=math.expm1(mean),
        low=math.expm1(mean - half),
        high=math.expm1(mean + half),
        p=float(stdtr(df, -mean / error)) if error else float(mean <= 0),
        control=math.expm1(control),
        control_holds=abs(control) <= float(stdtrit(df - 1, 1 - alpha / 2)) * control_error,
        visible=math.expm1(half + float(stdtrit(df, POWER)) * error),
    )


def launch_variance(contrasts: Sequence[float], controls: Sequence[float]) -> float:
    """The variance of the logarithm of one launch's time, by the scatter of both contrasts and
    controls.
    """
    mean = fmean(contrasts)
    own = sum((each - mean) ** 2 for each in contrasts) / CONTRAST
    return (own + sum(each**2 for each in controls) / CONTROL) / (2 * len(contrasts) - 1)


def verdict(found: Estimate, threshold: float) -> Verdict | None:
    """What can be said by now; None: more pairs are needed."""
    if found.low > 0 and found.change >= threshold:
        return "regressed"
    if found.high < 0 and found.change <= -threshold:
        return "improved"
    return "pass" if found.high < threshold else None
