"""Plots of one number against another: settings, memory, and what a history needs for its own."""

from collections.abc import Mapping, Sequence
from typing import Any

from perfdoctor.report.html.page import Figure, Limits
from perfdoctor.report.thinning import extremes
from perfdoctor.schema.figures import MemoryCurve, Sweep

MIB = 2**20
"""Bytes of a MiB."""


def sweep_plot(sweep: Sweep) -> Figure:
    """A setting against the throughput, with the knee."""
    points = [
        {
            "x": max(each.setting, 1) if sweep.of == "batch size" else each.setting,
            "y": each.samples_per_s,
            "low": each.low,
            "high": each.high,
            "series": "measured",
            "mark": "knee" if each.is_best else "now" if each.is_observed else None,
            "text": f"{sweep.name} {each.setting}\n{each.samples_per_s:,.0f} samples/s",
        }
        for each in sweep.points
    ]
    return Figure(
        kind="curve",
        title=f"{sweep.name[:1].upper()}{sweep.name[1:]} against throughput",
        caption=(
            f"The throughput with each {sweep.name} that was tried, with 95 % intervals. The knee "
            "is the smallest one that is within 5 % of the best."
        ),
        data=curve(
            points,
            x=sweep.name,
            y="samples/s",
            log=sweep.of == "batch size",
            ticks=[each.setting for each in sweep.points],
        ),
        headings=(sweep.name, "samples/s", "95 % interval", ""),
        rows=tuple(
            (
                str(each.setting),
                f"{each.samples_per_s:,.0f}",
                f"{each.low:,.0f} to {each.high:,.0f}",
                ", ".join(["as observed"] * each.is_observed + ["the knee"] * each.is_best),
            )
            for each in sweep.points
        ),
    )


def curve(
    points: Sequence[Mapping[str, Any]],
    *,
    x: str,
    y: str,
    log: bool = False,
    ticks: Sequence[int] | None = None,
    colours: Sequence[str] = ("measured",),
    levels: Sequence[Mapping[str, Any]] = (),
    changes: Sequence[Mapping[str, Any]] = (),
    zero: bool = True,
) -> Mapping[str, Any]:
    """A curve as `draw.js` wants it; `levels` are drawn dashed, `changes` as vertical lines."""
    return {
        "points": list(points),
        "x": x,
        "y": y,
        "log": log,
        "ticks": ticks,
        "colours": list(colours),
        "levels": list(levels),
        "changes": list(changes),
        "zero": zero,
    }


def memory(curve_of: MemoryCurve, limits: Limits) -> Figure:
    """A plot of the memory that the process and its arrays held, by time."""
    samples = extremes(curve_of.samples, limits.spans, lambda each: each.rss_bytes)
    series = {"measured": "the process", "replayed": "its jax.Arrays"}
    points = [
        {
            "x": each.at_s,
            "y": size / MIB,
            "low": size / MIB,
            "high": size / MIB,
            "series": name,
            "mark": None,
            "text": f"{series[name]}, {each.at_s:.2f} s\n{size / MIB:,.0f} MiB",
        }
        for each in samples
        for name, size in (("measured", each.rss_bytes), ("replayed", each.array_bytes))
    ]
    thinned = len(curve_of.samples) - len(samples)
    left = f" {thinned:,} samples between extremes are not drawn." if thinned else ""
    return Figure(
        kind="curve",
        title="Memory over the traced window",
        caption=(
            f"{curve_of.available_bytes / MIB:,.0f} MiB could still be had when the window was "
            f"opened. The profiler's own events are part of the process's memory.{left}"
        ),
        data=curve(points, x="s since the window was opened", y="MiB", colours=list(series)),
        headings=("s", "the process", "its jax.Arrays"),
        rows=tuple(
            (f"{s.at_s:.2f}", f"{s.rss_bytes / MIB:,.0f} MiB", f"{s.array_bytes / MIB:,.0f} MiB")
            for s in samples[: limits.lines]
        ),
        legend=tuple(series.items()),
    )
