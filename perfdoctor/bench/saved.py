"""A candidate against numbers of another day, where the baseline can't be run here any more."""

import math
from collections.abc import Sequence
from statistics import fmean, variance
from typing import Literal

from scipy.special import ndtri, stdtrit

from perfdoctor.bench.comparison import NAMES, exact_changes, gated_of
from perfdoctor.bench.decision import ALPHA
from perfdoctor.bench.fingerprint import differences
from perfdoctor.bench.metrics import KINDS
from perfdoctor.schema.benchmark import Benchmark, Compared, Comparison
from perfdoctor.schema.errors import UsageError

SESSION_SD = 0.17
"""Standard deviation of the logarithm of the ratio of two sessions' mean times, of one program on
machines that name themselves alike: neighbours, clocks and memory differ from hour to hour, and
from host to host. No interval from the launches of one session holds that. Of five programs, each
run 32 to 102 times over six hours, the ratios scattered by 0.06, 0.07, 0.07, 0.08 and, of the one
that reads data, by 0.17 (tests/benchmarks/results/gate_accuracy.txt: one session's scatter)."""


def with_saved(
    baseline: Benchmark, candidate: Benchmark, against: str, threshold: float
) -> Comparison:
    """The verdict on the numbers alone; incomparable if they are of another machine.

    Raises:
        UsageError: they are of another target, or hold no launch.
    """
    if baseline.target != candidate.target:
        raise UsageError(
            f"{against} holds numbers of {command(baseline)}, not of {command(candidate)}"
        )
    if not baseline.launches:
        raise UsageError(f"{against} holds no launch; measure the baseline again")
    other = differences(baseline.fingerprint, candidate.fingerprint)
    sessions = (baseline, candidate)
    gated_names = gated_of(
        [fmean(launch.compile_s for launch in each.launches) for each in sessions],
        [each.exact.hlo if each.exact else None for each in sessions],
    )
    metrics = tuple(
        compared(
            kind.name,
            [kind.of(launch) for launch in baseline.launches],
            [kind.of(launch) for launch in candidate.launches],
            threshold,
            gated_names,
        )
        for kind in KINDS
        if all(kind.of(each) > 0 for each in (*baseline.launches, *candidate.launches))
    )
    gated = [each for each in metrics if each.gated]
    summary = "; ".join(
        f"{NAMES[each.name]} {each.change:+.1%} ({each.low:+.1%} to {each.high:+.1%})"
        for each in gated
    )
    if other:
        summary = f"{against} is of another machine or environment: {'; '.join(other)}"
    return Comparison(
        against=against,
        how="saved numbers",
        threshold=threshold,
        verdict="incomparable" if other else overall(gated),
        summary=summary,
        pairs=0,
        seconds=0.0,
        metrics=() if other else metrics,
        exact=() if other else exact_changes(baseline.exact, candidate.exact),
        causes=(),
    )


def command(benchmark: Benchmark) -> str:
    """What was measured, as it was called."""
    return " ".join([benchmark.target.name, *benchmark.target.args])


def overall(gated: Sequence[Compared]) -> Literal["regressed", "pass", "improved", "inconclusive"]:
    """The gravest of the verdicts."""
    verdicts = {each.verdict for each in gated}
    if "regressed" in verdicts:
        return "regressed"
    if "inconclusive" in verdicts:
        return "inconclusive"
    return "improved" if "improved" in verdicts else "pass"


def compared(
    name: str,
    before: Sequence[float],
    after: Sequence[float],
    threshold: float,
    gated: Sequence[str],
) -> Compared:
    """A metric of two sessions, each with a value of each launch; the gated ones share ALPHA."""
    old, new = [math.log(each) for each in before], [math.log(each) for each in after]
    change = fmean(new) - fmean(old)
    alpha = ALPHA / len(gated)
    half = math.hypot(float(ndtri(1 - alpha)) * SESSION_SD, half_width(old, new, alpha))
    low, high = math.expm1(change - half), math.expm1(change + half)
    answer: Literal["regressed", "pass", "improved", "inconclusive"] = "inconclusive"
    if low > 0 and math.expm1(change) >= threshold:
        answer = "regressed"
    elif high < 0 and math.expm1(change) <= -threshold:
        answer = "improved"
    elif high < threshold:
        answer = "pass"
    return Compared(
        name=name,
        gated=name in gated,
        verdict=answer if name in gated else None,
        change=math.expm1(change),
        low=low,
        high=high,
        visible=math.expm1(half),
    )


def half_width(old: Sequence[float], new: Sequence[float], alpha: float) -> float:
    """Half the width of the interval of the difference of two means, by the launches within the
    sessions.
    """
    df = len(old) + len(new) - 2
    if df < 1:
        return math.inf
    pooled = sum((len(each) - 1) * variance(each) for each in (old, new) if len(each) > 1) / df
    error = math.sqrt(pooled * (1 / len(old) + 1 / len(new)))
    return float(stdtrit(df, 1 - alpha)) * error
