"""The plots of a Report, but for the timeline: each from its own part of the Report."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perfdoctor.report.html.curves import memory, sweep_plot
from perfdoctor.report.html.page import Figure, Limits
from perfdoctor.report.html.timeline import timeline
from perfdoctor.report.lanes import PARTS
from perfdoctor.report.rank import interval
from perfdoctor.report.words import BASES
from perfdoctor.schema.figures import LayerShare
from perfdoctor.schema.fix import Gain
from perfdoctor.schema.report import Report
from perfdoctor.schema.summary import StepSummary

TOGETHER = "all fixes together"
"""The name of the row for the gain of all fixes."""
WIDEST = 60
"""Characters of a label in a plot."""


def plots(report: Report, limits: Limits) -> Iterator[Figure]:
    """All that there is something to draw of."""
    if report.timeline is not None and len(report.timeline.borders_ms) > 1:
        slowed = report.steps["slowed"] if report.steps is not None else 1.0
        yield timeline(report.timeline, slowed, limits)
    if report.steps is not None and sum(report.steps["parts_ms"].values()) > 0:
        yield step(report.steps)
    if gains := gains_of(report, limits):
        yield gains_plot(gains, report)
    for sweep in report.sweeps:
        yield sweep_plot(sweep)
    if report.memory is not None and len(report.memory.samples) > 1:
        yield memory(report.memory, limits)
    if report.layers:
        yield layers(report.layers)


def step(steps: StepSummary) -> Figure:
    """Where the time of a step goes; below, the same step without its host, or with it emulated."""
    bars = ["this run"]
    parts: list[tuple[str, str, float, float]] = []
    at_ms = 0.0
    for name, ms in steps["parts_ms"].items():
        parts.append(("this run", name, at_ms, at_ms + ms))
        at_ms += ms
    rows = [
        ("this run", PARTS.get(name, name), f"{ms:.3f} ms", f"{ms / at_ms:.1%}")
        for name, ms in steps["parts_ms"].items()
    ]
    wholes = {
        "this run, untraced": steps.get("untraced_ms"),
        "replayed, host emulated": steps.get("emulated_ms"),
        "the step alone": steps.get("alone_ms"),
    }
    for label, whole_ms in wholes.items():
        if whole_ms is not None:
            bars.append(label)
            parts.append((label, "whole", 0.0, whole_ms))
            rows.append((label, "the whole step", f"{whole_ms:.3f} ms", f"{whole_ms / at_ms:.1%}"))
    used = [name for name, ms in steps["parts_ms"].items() if ms > 0]
    legend = tuple((name, f"{PARTS.get(name, name)}, device idle") for name in used)
    return Figure(
        kind="stack",
        title="Where the time of a step goes",
        caption=step_caption(steps, is_alone=steps.get("alone_ms") is not None),
        data={
            "bars": bars,
            "parts": parts,
            "colours": [*steps["parts_ms"], "whole"],
            "words": {**PARTS, "whole": "the whole step"},
        },
        headings=("bar", "part", "a step", "of the traced step"),
        rows=tuple(rows),
        legend=tuple((n, "device computing" if n == "device" else text) for n, text in legend),
    )


def step_caption(steps: StepSummary, *, is_alone: bool) -> str:
    """What the bars mean."""
    text = (
        f"The mean of {steps['count']:,} steps. Each moment counts once: where the device computes "
        "as that, and where it idles as what the main thread does."
    )
    if is_alone:
        text += " What it could be: the step alone is the same step with nothing on the host."
    elif why := steps.get("not_replayed"):
        text += f" The step alone was not measured: {why}."
    return text


Gains = list[tuple[str, str, Gain]]
"""Label, group and gain."""


def gains_of(report: Report, limits: Limits) -> Gains:
    """One a trial, or one a finding that was not tried; and all fixes together."""
    rows: Gains = []
    for each in report.tried:
        if each.gain is not None:
            after = f", after {' and '.join(each.after)}" if each.after else ""
            label = f"{each.check}{after}: {each.how}" if each.check else TOGETHER
            rows.append((label, each.gain.basis, each.gain))
    known = {each.check for each in report.tried if each.gain is not None}
    for finding in report.findings:
        if finding.gain is not None and finding.check not in known:
            rows.append((f"{finding.check}: {finding.fix.how}", finding.gain.basis, finding.gain))
    rows.sort(key=lambda row: (row[0] == TOGETHER, -row[2].low))
    together = [row for row in rows if row[0] == TOGETHER]
    return [*[row for row in rows if row[0] != TOGETHER][: limits.facts], *together]


def gains_plot(gains: Gains, report: Report) -> Figure:
    """Each fix's gain with its interval."""
    labels = distinct([label for label, _, _ in gains])
    failed = [each for each in report.tried if each.gain is None]
    left_out = len(report.tried) - len(failed) - len(gains)
    caption = (
        "The throughput with a fix over that without it; the bars are 95 % intervals, the dashed "
        "line is no gain. Gains do not add: what all fixes gain together stands last."
    )
    if failed:
        caption += f" {len(failed)} could not be run: {failed[0].how}: {failed[0].failure}."
    if left_out > 0:
        caption += f" {left_out:,} smaller ones are not drawn."
    bases = list(dict.fromkeys(group for _, group, _ in gains))
    return Figure(
        kind="intervals",
        title="What each fix gains",
        caption=caption,
        data={
            "x": "times the throughput",
            "log": True,
            "percent": False,
            "rules": [1.0],
            "colours": bases,
            "rows": [
                interval_row(label, basis, gain.speedup, gain.low, gain.high, interval(gain))
                for label, (_, basis, gain) in zip(labels, gains, strict=True)
            ],
        },
        headings=("fix", "gain (95 % interval)", "how it is known"),
        rows=tuple((label, interval(gain), BASES[gain.basis]) for label, _, gain in gains),
        legend=tuple((basis, BASES[basis]) for basis in bases),
    )


def interval_row(
    label: str,
    group: str,
    value: float,
    low: float,
    high: float,
    text: str,
    points: Sequence[float] = (),
) -> Mapping[str, Any]:
    """A line of an interval plot, as `draw.js` wants it."""
    return {
        "label": label,
        "group": group,
        "value": value,
        "low": low,
        "high": high,
        "text": f"{label}\n{text}",
        "points": list(points),
    }


def distinct(labels: Sequence[str]) -> list[str]:
    """Labels of one line, short enough for a plot, and no two alike."""
    found: list[str] = []
    for label in labels:
        short = " ".join(label.split())
        short = short if len(short) <= WIDEST else f"{short[: WIDEST - 1]}…"
        again = 2
        name = short
        while name in found:
            name, again = f"{short} ({again})", again + 1
        found.append(name)
    return found


def layers(shares: Sequence[LayerShare]) -> Figure:
    """The forward pass by its layers."""
    labels = distinct([f"{each.name}, {each.place}" for each in shares])
    return Figure(
        kind="bars",
        title="The step by layer",
        caption="Shares of the floating-point operations of the forward pass.",
        data={
            "x": "% of the forward pass",
            "rows": [
                {
                    "label": label,
                    "value": 100 * each.share,
                    "text": f"{each.name}\n{each.function} ({each.place})\n{each.flops:.3g} FLOPs",
                }
                for label, each in zip(labels, shares, strict=True)
            ],
        },
        headings=("layer", "line", "FLOPs a step", "share"),
        rows=tuple(
            (each.name, f"{each.function}, {each.place}", f"{each.flops:.3g}", f"{each.share:.1%}")
            for each in shares
        ),
    )
