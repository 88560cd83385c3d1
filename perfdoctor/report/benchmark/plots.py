"""The plots of a Benchmark: its pairs, its launches, its history."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import fmean, median
from typing import Any

from perfdoctor.report.benchmark.words import LABELS, change, scaled, unit_for
from perfdoctor.report.html.curves import curve
from perfdoctor.report.html.page import Figure, Limits
from perfdoctor.report.html.plots import interval_row
from perfdoctor.report.thinning import extremes
from perfdoctor.schema.benchmark import Benchmark, Compared, Comparison, LaunchRecord, Metric, Trend

COLOURS = {"regressed": "gc", "improved": "device", "pass": "device", "inconclusive": "etl"}
"""The colour of a metric's interval, by its verdict; a metric without one has another colour."""
WORDS = {
    "gc": "regressed",
    "device": "passed or improved",
    "etl": "inconclusive",
    "estimated": "reported without a verdict",
}
"""What the colours stand for, in the legend."""
MOST_TICKS = 12
"""Parts of a launch that each have a tick on the axis; of more, the plot chooses some."""
COMMIT = 10
"""Characters of a commit's hash that are shown."""


def plots(benchmark: Benchmark, limits: Limits) -> Iterator[Figure]:
    """All that there is something to draw of."""
    if benchmark.comparison is not None and benchmark.comparison.metrics:
        yield pairs(benchmark.comparison, limits)
    if any(len(launch.shape_ms) > 1 for launch in benchmark.launches):
        yield launches(benchmark.launches, limits)
    for trend in filter(is_whole, benchmark.trends):
        yield history(trend, {each.name: each for each in benchmark.metrics}, limits)


def is_whole(trend: Trend) -> bool:
    """Whether a saved trend has all of each result, and its changes are among them."""
    count = len(trend.values)
    whole = len(trend.created) == len(trend.commits) == count > 0
    return whole and all(0 <= change.index < count for change in trend.changes)


def pairs(found: Comparison, limits: Limits) -> Figure:
    """Each metric's change with its interval, the pairs below it, and the threshold."""
    metrics = found.metrics[: limits.lines]
    rows = []
    for each in metrics:
        rows.append(row(each, limits))
        if each.control_by_pair:
            rows.append(control(each, limits))
    colours = list(dict.fromkeys(str(each["group"]) for each in rows))
    return Figure(
        kind="intervals",
        title="The candidate against the baseline",
        caption=(
            f"Changes of {found.pairs} live pairs: the bar is the interval on which the verdict "
            "rests, small circles are single pairs. Dashed lines: no change, and the threshold of "
            f"{found.threshold:.1%}. The lines of the baseline against itself show the noise."
            if found.how == "live pairs"
            else "Changes between two saved results, with their intervals. Dashed lines: no "
            f"change, and the threshold of {found.threshold:.1%}."
        ),
        data={
            "x": "change",
            "log": False,
            "percent": True,
            "rules": [0.0, found.threshold],
            "colours": colours,
            "rows": rows,
        },
        headings=("metric", "change (interval)", "verdict", "by pair", "baseline against itself"),
        rows=tuple(
            (
                LABELS.get(each.name, each.name),
                change(each),
                each.verdict or "told only",
                " ".join(f"{ratio:+.1%}" for ratio in each.by_pair[: limits.lines]),
                " ".join(f"{ratio:+.1%}" for ratio in each.control_by_pair[: limits.lines]),
            )
            for each in metrics
        ),
        legend=tuple((colour, WORDS[colour]) for colour in colours),
    )


def row(each: Compared, limits: Limits) -> Mapping[str, Any]:
    """The change of a metric."""
    colour = COLOURS.get(each.verdict or "", "estimated")
    points = extremes(each.by_pair, limits.spans, float)
    name = LABELS.get(each.name, each.name)
    return interval_row(name, colour, each.change, each.low, each.high, change(each), points)


def control(each: Compared, limits: Limits) -> Mapping[str, Any]:
    """The baseline against itself; its interval is from the least to the most."""
    points = extremes(each.control_by_pair, limits.spans, float)
    middle = fmean(each.control_by_pair)
    name = f"{LABELS.get(each.name, each.name)}: baseline twice"
    low, high = min(points), max(points)
    text = f"{middle:+.1%}, from {low:+.1%} to {high:+.1%}"
    return interval_row(name, "estimated", middle, low, high, text, points)


def launches(records: Sequence[LaunchRecord], limits: Limits) -> Figure:
    """The course of each launch: means of consecutive steps."""
    shown = records[: min(limits.facts, 20)]
    points = [
        {
            "x": position,
            "y": value,
            "low": value,
            "high": value,
            "series": "measured",
            "group": str(number),
            "mark": None,
            "text": f"launch {number}\n{value:.4g} ms",
        }
        for number, launch in enumerate(shown, 1)
        for position, value in enumerate(extremes(launch.shape_ms, limits.spans, float), 1)
    ]
    parts = max((min(len(each.shape_ms), limits.spans) for each in shown), default=0)
    ticks = list(range(1, parts + 1)) if parts <= MOST_TICKS else None
    left = f" The first {len(shown)} of {len(records)}." if len(shown) < len(records) else ""
    return Figure(
        kind="curve",
        title="Step time within each launch",
        caption=f"Means of consecutive steps, a line for each fresh process.{left}",
        data=curve(points, x="part of the launch", y="ms a step", ticks=ticks, zero=False),
        headings=("launch", "mean", "median", "95 % below", "steady"),
        rows=tuple(
            (
                str(number),
                f"{each.mean_ms:.4g} ms",
                f"{each.median_ms:.4g} ms",
                f"{each.p95_ms:.4g} ms",
                "yes" if each.steady else "never",
            )
            for number, each in enumerate(shown, 1)
        ),
    )


def history(trend: Trend, metrics: Mapping[str, Metric], limits: Limits) -> Figure:
    """A metric over the results of a history, with the levels and where they changed."""
    unit = metrics[trend.metric].unit if trend.metric in metrics else ""
    label = LABELS.get(trend.metric, trend.metric)
    chosen = extremes(range(len(trend.values)), limits.spans, lambda index: trend.values[index])
    return Figure(
        kind="curve",
        title=f"History: {label}",
        caption=(
            f"{len(trend.values):,} results of the same target on the same machine since "
            f"{trend.created[0][:10]}. Dashed: levels that lasted; red: where one changed."
            + (
                f" {len(trend.values) - len(chosen):,} results between extremes are not drawn."
                if len(chosen) < len(trend.values)
                else ""
            )
        ),
        data=curve(
            [point(trend, index, unit) for index in chosen],
            x="result",
            y=unit_for(max(trend.values), unit)[1],
            levels=levels(trend, unit),
            changes=[
                {"x": each.index + 1, "text": told(trend, each.index, each.ratio)}
                for each in trend.changes[: limits.lines]
            ],
            zero=False,
        ),
        headings=("since", "commit", "change of the level"),
        rows=tuple(
            (
                trend.created[each.index],
                (trend.commits[each.index] or "")[:COMMIT],
                f"{each.ratio - 1:+.1%}",
            )
            for each in trend.changes[: limits.lines]
        ),
    )


def point(trend: Trend, index: int, unit: str) -> Mapping[str, Any]:
    """One result."""
    most = max(trend.values)
    shown = scaled(trend.values[index], unit, most)
    value = trend.values[index] / unit_for(most, unit)[0]
    commit = (trend.commits[index] or "")[:COMMIT]
    return {
        "x": index + 1,
        "y": value,
        "low": value,
        "high": value,
        "series": "measured",
        "mark": None,
        "text": f"{' '.join(shown)}\n{trend.created[index]} {commit}",
    }


def levels(trend: Trend, unit: str) -> list[Mapping[str, float]]:
    """The median of the results from each change to the next one."""
    size, _ = unit_for(max(trend.values), unit)
    ends = [0, *(each.index for each in trend.changes), len(trend.values)]
    return [
        {
            "from": begin + 1,
            "to": end,
            "y": median(trend.values[begin:end]) / size,
        }
        for begin, end in pairwise(ends)
        if end > begin
    ]


def told(trend: Trend, index: int, ratio: float) -> str:
    """A change of level, since when."""
    commit = trend.commits[index]
    return f"{ratio - 1:+.1%} since {trend.created[index]}{f' {commit[:COMMIT]}' if commit else ''}"
