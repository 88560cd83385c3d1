"""The Report for a reader at a terminal."""

import io

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from perfdoctor.report.rank import interval
from perfdoctor.schema.report import Finding, Gain, Kind, Report

BAR_WIDTH = 48
INKS = {
    "device": ("▇", "green"),
    "etl": ("▒", "yellow"),
    "gc": ("▓", "red"),
    "dispatch": ("░", "cyan"),
    "wait": ("▚", "magenta"),
    "other": ("▞", "blue"),
}
"""How the parts of a step are drawn."""
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
    console.print(Text(sentence(report), style="bold"))
    console.print()
    if report.findings:
        console.print(table(report))
        console.print()
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


def sentence(report: Report) -> str:
    """The report in one sentence."""
    count = len(report.findings)
    if count == 0:
        unseen = [c for c in report.checks if c.outcome in ("not-measured", "crashed")]
        if len(unseen) == len(report.checks):
            return f"Nothing could be measured: {unseen[0].summary}." if unseen else "No checks."
        missing = f"; {len(unseen)} checks could not be made" if unseen else ""
        return f"No cause of slowness found in {len(report.checks)} checks{missing}."
    first = report.findings[0]
    causes = f"{count} cause{'s' * (count > 1)}"
    if first.gain is None:
        return f"{causes}, the first keeps the training from running as it could: {first.check}."
    gain = report.combined_gain or first.gain
    speed = f"This run trains at {1 / gain.speedup:.0%} of the speed that it could have here."
    which = (
        "its fix" if count == 1 else "all fixes together" if report.combined_gain else "the first"
    )
    return f"{speed} {causes}, {which}: {interval(gain)}, {gain.basis}."


def table(report: Report) -> Table:
    """The findings by rank; under each, what was seen."""
    rows = Table(box=None, padding=(0, 2, 0, 0), show_edge=False)
    for name in ("#", "cause", "costs a step", "its fix gains", "how"):
        rows.add_column(name, header_style="dim", overflow="fold")
    time_ms = report.steps["time_ms"] if report.steps else None
    for finding in report.findings:
        rows.add_row(
            str(finding.rank),
            Text(finding.check, style="bold"),
            cost(finding.gain, time_ms),
            gain_text(finding.gain),
            Text(finding.fix.how, style="green"),
        )
    outer = Table.grid()
    outer.add_row(rows)
    for finding in report.findings:
        outer.add_row(Padding(Text(seen(finding)), (0, 0, 0, 3)))
    return outer


def seen(finding: Finding) -> str:
    """What was seen, and what the fix is, in words."""
    fix = finding.fix
    caution = {
        "no": "",
        "numerics": " (results change by rounding)",
        "training": " (changes the training)",
    }
    return f"{finding.rank}: {finding.summary}.\n   → {fix.summary}{caution[fix.changes_results]}."


def cost(gain: Gain | None, time_ms: float | None) -> str:
    """The part of a step that the fix would save, for the same number of samples."""
    if gain is None or time_ms is None:
        return ""
    share = 1 - 1 / gain.speedup
    return f"{time_ms * share:.1f} ms  {share:.0%}"


def gain_text(gain: Gain | None) -> str:
    """The gain with its interval and where it comes from."""
    return "" if gain is None else f"{interval(gain)} {gain.basis}"


def bar(steps: dict[str, object]) -> Text:
    """Where the time of a step goes."""
    parts: dict[str, float] = steps["parts_ms"]  # type: ignore[assignment]
    total = sum(parts.values())
    text = Text(f" a step, {total:.2f} ms   ")
    for name, value in parts.items():
        ink, style = INKS[name]
        text.append(ink * round(BAR_WIDTH * value / total), style=style)
    text.append("\n   ")
    for name, value in sorted(parts.items(), key=lambda part: -part[1]):
        if value >= 0.005 * total:
            ink, style = INKS[name]
            text.append(f" {ink} ", style=style)
            text.append(f"{name} {value:.2f} ms  {value / total:.0%} ")
    return text


def every_check(report: Report) -> Table:
    """One line for each check."""
    rows = Table.grid(padding=(0, 2, 0, 1))
    for check in report.checks:
        rows.add_row(Text(check.id, style="bold"), check.outcome, escape(check.summary))
    return rows


def groups(report: Report) -> list[Text]:
    """The checks that found nothing, by outcome; hints with their text."""
    lines = []
    for kind, name in GROUPS.items():
        members = [check for check in report.checks if check.outcome == kind]
        if kind == "ok" and members:
            lines.append(Text(f" {name}: {' '.join(check.id for check in members)}"))
        elif kind != "ok":
            lines += [Text(f" {name}: {check.id}: {check.summary}") for check in members]
    return lines
