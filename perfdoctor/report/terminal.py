"""The Report for a reader at a terminal."""

import io
import textwrap
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from perfdoctor.report.rank import interval
from perfdoctor.schema.fix import Fix, Gain
from perfdoctor.schema.report import CheckResult, Finding, Kind, Report

BAR_WIDTH = 48
OFTEN, MOST_CALLS = 0.5, 4
"""Calls a step, and functions, that are shown: of a step that is made of several jitted calls."""
WORTH_TELLING = 1.1
"""Times that steps were longer for being traced."""
WORTH_A_LINE = 0.1
"""Of the step: parts whose place in the code is shown."""
INDENT = " " * 6
INKS = {
    "device": ("▇", "green"),
    "etl": ("▒", "yellow"),
    "gc": ("▓", "red"),
    "dispatch": ("░", "cyan"),
    "wait": ("▚", "magenta"),
    "logging": ("◆", "white"),
    "other": ("▞", "blue"),
}
"""How the parts of a step are drawn."""
HOST = {
    "etl": "loading",
    "gc": "collections",
    "dispatch": "dispatching the calls",
    "wait": "waiting for results",
    "logging": "logging",
    "other": "other Python",
}
"""The host's parts of a step, in words."""
BASES = {
    "measured": "measured",
    "replayed": "measured on the step alone",
    "estimated": "estimated",
}
"""Where a gain is from, in words."""
GROUPS: dict[Kind, str] = {
    "ok": "well",
    "hint": "hint",
    "not-applicable": "not applicable",
    "not-measured": "not measured",
    "crashed": "crashed",
}


def render(report: Report, *, verbose: bool = False, width: int = 100, colour: bool = False) -> str:
    """The whole report as text, with ANSI colours if asked for."""
    out = io.StringIO()
    console = Console(
        file=out,
        width=width,
        force_terminal=colour,
        color_system="standard" if colour else None,
        highlight=False,
    )
    console.print(Text(heading(report), style="dim"))
    console.print()
    console.print(Text(f"{distance(report.steps)}{sentence(report)}", style="bold"))
    console.print()
    if report.findings:
        console.print(table(report, width), soft_wrap=True)
    if report.steps:
        console.print(bar(report.steps))
        console.print()
    if verbose:
        console.print(every_check(report))
    else:
        for line in groups(report):
            console.print(line)
    if report.findings:
        console.print(f" perfdoctor explain {report.findings[0].check}  says more")
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def heading(report: Report) -> str:
    """What was examined, where."""
    env = report.environment
    vectors = [flag for flag in env["vector_sets"] if flag in ("avx", "avx2", "avx512f")]
    machine = [env["backend"] or "no backend", f"{env['cores']:g} cores", *vectors[-1:]]
    jax = env["packages"].get("jax", "not installed")
    place = ", ".join(machine)
    return f"perfdoctor {report.perfdoctor} · check {report.target.name} · {place} · jax {jax}"


def distance(steps: dict[str, Any] | None) -> str:
    """How far the run is from what its own step can do here, if that is known."""
    if steps is None or steps.get("alone_ms") is None or not steps.get("untraced_ms"):
        return ""
    taken_ms, alone_ms = steps["untraced_ms"], steps["alone_ms"]
    share = min(1.0, alone_ms / taken_ms)
    return (
        f"A step takes {taken_ms:.3g} ms in this run and {alone_ms:.3g} ms alone: the run trains "
        f"at {share:.0%} of what its own step can do here. "
    )


def sentence(report: Report) -> str:
    """What was found, in one sentence."""
    count = len(report.findings)
    if count == 0:
        unseen = [c for c in report.checks if c.outcome in ("not-measured", "crashed")]
        if report.steps is None:
            return f"No training steps were measured{why(unseen)}."
        missing = f"; {len(unseen)} checks could not be made" if unseen else ""
        return f"No cause of slowness found in {len(report.checks)} checks{missing}.{rest(report)}"
    first = report.findings[0]
    causes = f"{count} cause{'s' * (count > 1)}"
    if first.gain is None:
        return f"{causes}, the first keeps the training from running as it could: {first.check}."
    gain = report.combined_gain or first.gain
    speed = ""
    if not distance(report.steps):
        speed = f"This run trains at {1 / gain.speedup:.0%} of the speed that it could have here. "
    which = (
        "its fix" if count == 1 else "all fixes together" if report.combined_gain else "the first"
    )
    return f"{speed}{causes}, {which}: {interval(gain)}, {BASES[gain.basis]}."


def rest(report: Report) -> str:
    """Where the time goes that a step takes beside what it takes alone, if no cause explains it."""
    steps = report.steps
    if steps is None or not distance(steps):
        return ""
    lost_ms = steps["untraced_ms"] - steps["alone_ms"]
    if lost_ms < WORTH_A_LINE * steps["untraced_ms"]:
        return ""
    parts: dict[str, float] = {name: ms for name, ms in steps["parts_ms"].items() if name in HOST}
    largest = max(parts, key=lambda name: parts[name])
    text = f" No finding explains the {lost_ms:.3g} ms that a step takes beyond that"
    if parts[largest] < WORTH_A_LINE * steps["untraced_ms"]:
        return f"{text}."
    idle = f"{parts[largest]:.3g} ms of {HOST[largest]} while the device idles"
    return f"{text}; there are {idle}."


def why(unseen: list[CheckResult]) -> str:
    """The first reason, if there is one."""
    return f": {unseen[0].summary}" if unseen else ""


def table(report: Report, width: int) -> Text:
    """The findings by rank; under each, what was seen and what its fix does."""
    time_ms = report.steps["time_ms"] if report.steps else None
    rows = [("#", "cause", "costs a step", "its fix gains")]
    for each in report.findings:
        rows.append((str(each.rank), each.check, cost(each, time_ms), gain_text(each.gain)))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    cells = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) for row in rows]
    text = Text(f" {cells[0]}  how\n", style="dim")
    for row, finding in zip(cells[1:], report.findings, strict=True):
        text.append(f" {row}", style="not dim bold")
        text.append(f"  {finding.fix.how}\n", style="not dim green")
        text.append(indented(f"{finding.summary}", width), style="not dim")
        advice = f"→ {finding.fix.summary}{caution(finding.fix)}{remainder(finding)}"
        text.append(indented(advice, width), style="dim")
    return text


def indented(text: str, width: int) -> str:
    """Wrapped, under the name of its finding."""
    return textwrap.fill(text, width, initial_indent=INDENT, subsequent_indent=INDENT) + "\n"


def caution(fix: Fix) -> str:
    """What the fix does to the trained model."""
    return {"no": "", "numerics": "; results change by rounding", "training": "; changes training"}[
        fix.changes_results
    ]


def remainder(finding: Finding) -> str:
    """What it gains once the fixes of the better findings are made."""
    remaining = finding.remaining_gain
    return f"; {interval(remaining)} on top of the fixes above" if remaining else ""


def cost(finding: Finding, time_ms: float | None) -> str:
    """The part of a step, or of a launch, that the fix saves for the same number of samples."""
    gain, change = finding.gain, finding.fix.change
    if gain is None or time_ms is None:
        return ""
    share = 1 - 1 / gain.speedup
    if change is not None and change.speeds_up == "launch":
        return f"of a launch  {share:.0%}"
    return f"{time_ms * share:.1f} ms  {share:.0%}"


def gain_text(gain: Gain | None) -> str:
    """The gain with its interval and where it comes from."""
    return "" if gain is None else f"{interval(gain)} {BASES[gain.basis]}"


def bar(steps: dict[str, Any]) -> Text:
    """Where the time of a step goes."""
    parts: dict[str, float] = steps["parts_ms"]
    total = sum(parts.values())
    traced = ", traced" if steps["slowed"] == 1 else ""
    text = Text(f" a step{traced}, {total:.2f} ms   ")
    for name, value in parts.items():
        ink, style = INKS[name]
        text.append(ink * round(BAR_WIDTH * value / total), style=style)
    text.append("\n   ")
    for name, value in sorted(parts.items(), key=lambda part: -part[1]):
        if value >= 0.005 * total:
            ink, style = INKS[name]
            text.append(f" {ink} ", style=style)
            text.append(f"{name} {value:.2f} ms {value / total:.0%}  ")
    text.append(f"\n    {scatter(steps)}", style="dim")
    if steps.get("failed"):
        text.append(f"\n    after these steps the run failed: {steps['failed']}", style="bold")
    if steps.get("made_up"):
        names = ", ".join(steps["made_up"][:MOST_CALLS])
        text.append(f"\n    replayed with made-up values, too large to save: {names}", style="dim")
    if steps.get("not_replayed"):
        why = f"nothing was measured on the step alone: {steps['not_replayed']}"
        text.append(f"\n    {why}", style="dim")
    for name, value in parts.items():
        if value >= WORTH_A_LINE * total and (where := busiest(steps, name)):
            text.append(f"\n    {name}: {where}", style="dim")
    return text


def scatter(steps: dict[str, Any]) -> str:
    """What a step is made of, and how they differ."""
    calls = {name: count for name, count in steps["calls"].items() if count >= OFTEN}
    text = ""
    if 1 < len(calls) <= MOST_CALLS:
        text = " + ".join(f"{count:.2g}× {name}()" for name, count in calls.items()) + "; "
    text += f"median {steps['median_ms']:.2f} ms, 95% below {steps['p95_ms']:.2f} ms"
    if steps["outliers"]:
        text += (
            f"; {steps['outliers']} of {steps['count']} took over three times the median, "
            f"{steps['outlier_share']:.0%} of the time"
        )
    if steps["slowed"] >= WORTH_TELLING:
        text += f"; {steps['slowed']:.1f} times as long while it was traced"
    return text


def busiest(steps: dict[str, Any], part: str) -> str:
    """The line in which the main thread was most, for one part of the step."""
    found = [each for each in steps["places"] if each["part"] == part]
    if not found:
        return ""
    share, function, place = (found[0][key] for key in ("share", "function", "place"))
    return f"{share:.0%} of the main thread's time in {function}() ({place})"


def every_check(report: Report) -> Table:
    """One line for each check."""
    rows = Table.grid(padding=(0, 2, 0, 1), pad_edge=True)
    for check in report.checks:
        rows.add_row(Text(check.id, style="bold"), check.outcome, Text(check.summary))
    return rows


def groups(report: Report) -> list[Text]:
    """The checks that found nothing, by outcome; hints with their text."""
    lines = []
    for kind, name in GROUPS.items():
        members = [check for check in report.checks if check.outcome == kind]
        if kind == "ok" and members:
            lines.append(Text(f" {name}: {' '.join(check.id for check in members)}"))
        elif kind != "ok":
            for reason in dict.fromkeys(check.summary for check in members):
                ids = " ".join(check.id for check in members if check.summary == reason)
                lines.append(Text(f" {name}: {ids}: {reason}"))
    return lines
