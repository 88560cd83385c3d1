"""The Report as a page in one file."""

from collections.abc import Sequence
from typing import Any

from perfdoctor.report.html.page import Limits, filled, fitting
from perfdoctor.report.html.plots import plots
from perfdoctor.report.words import (
    GROUPS,
    caution,
    distance,
    gain_text,
    heading,
    remainder,
    sentence,
    value,
)
from perfdoctor.schema.figures import SourceLines
from perfdoctor.schema.fix import Gain
from perfdoctor.schema.report import Finding, Report

GIB = 2**30
"""Bytes of a GiB."""
MOST_SOURCES = 3
"""Places of one finding whose lines are shown."""


def render(report: Report) -> str:
    """One file that asks for nothing from the network."""
    return fitting(lambda limits: page(report, limits))


def page(report: Report, limits: Limits) -> str:
    """The page, with as much in it as the limits allow."""
    full = report.findings[: limits.findings]
    rest = report.findings[limits.findings :]
    return filled(
        "report.html.j2",
        limits,
        title=f"perfdoctor: {report.target.name}",
        heading="Diagnosis of",
        name=report.target.name,
        machine=heading(report),
        version=report.perfdoctor,
        created=report.created,
        answer=f"{distance(report.steps)}{sentence(report)}",
        tone=tone(report),
        shortened=f"Of {len(rest):,} findings only a line is shown." if rest else "",
        findings=[told(each, report, limits) for each in full],
        others=[brief(each) for each in rest[: limits.lines]],
        others_left_out=max(0, len(rest) - limits.lines),
        figures=list(plots(report, limits)),
        checks=[
            (each.id, GROUPS.get(each.outcome, each.outcome), each.summary)
            for each in report.checks[: limits.lines]
        ],
        checks_left_out=max(0, len(report.checks) - limits.lines),
        machine_facts=machine_facts(report, limits),
    )


def tone(report: Report) -> str:
    """How the answer is coloured."""
    if report.findings:
        return "bad"
    return "good" if report.steps else "doubt"


def told(finding: Finding, report: Report, limits: Limits) -> dict[str, Any]:
    """All of a finding."""
    facts = [(each.name, value(each), each.source) for each in finding.evidence]
    return {
        "rank": finding.rank,
        "check": finding.check,
        "gain": gain_text(finding.gain),
        "summary": finding.summary,
        "sources": [numbered(each) for each in sources_of(finding, report.sources)],
        "how": finding.fix.how,
        "advice": f"{finding.fix.summary}{caution(finding.fix)}{remainder(finding)}",
        "sureness": sureness(finding.gain),
        "facts": facts[: limits.facts],
        "facts_left_out": max(0, len(facts) - limits.facts),
    }


def brief(finding: Finding) -> tuple[int, str, str, str]:
    """A finding in a line."""
    cut = finding.summary if len(finding.summary) <= 120 else f"{finding.summary[:120]}…"
    return finding.rank, finding.check[:60], gain_text(finding.gain), cut


def sources_of(finding: Finding, sources: Sequence[SourceLines]) -> list[SourceLines]:
    """The lines that its evidence, or its summary, names."""
    named = [finding.summary, *(fact.source for fact in finding.evidence)]
    found = [each for each in sources if any(each.place in text for text in named)]
    return found[:MOST_SOURCES]


def numbered(source: SourceLines) -> dict[str, Any]:
    """Lines with their numbers, and which is meant."""
    lines = [
        (number, line, number == source.line)
        for number, line in enumerate(source.lines, source.first_line)
    ]
    return {"place": source.place, "lines": lines}


def sureness(gain: Gain | None) -> str:
    """How the gain is known, and how well."""
    if gain is None:
        return "The gain of this fix was not measured, and can't be estimated from what was seen."
    between = f"between {gain.low:.2f} and {gain.high:.2f} times"
    if gain.basis == "measured":
        return (
            "Measured: copies of the run with the fix and without it took turns. The throughput is "
            f"{gain.speedup:.2f} times as high with the fix; with 95 % certainty {between}."
        )
    if gain.basis == "replayed":
        return (
            "Measured on the captured step, replayed with and without the fix beside an emulated "
            f"host: {gain.speedup:.2f} times the throughput, with 95 % certainty {between}."
        )
    return (
        f"Estimated from the timeline, and not tried: about {gain.speedup:.2f} times the "
        f"throughput, {between}."
    )


def machine_facts(report: Report, limits: Limits) -> list[tuple[str, str]]:
    """Names and values, empty ones left out."""
    env = report.environment
    memory = env.get("memory_bytes")
    rows = [
        ("os", env.get("os") or ""),
        ("CPU", env.get("cpu") or ""),
        ("usable cores", f"{env['cores']:g}" if "cores" in env else ""),
        ("memory", f"{memory / GIB:.1f} GiB" if memory else ""),
        ("backend", env.get("backend") or "none"),
        ("devices", ", ".join(env.get("devices", ()))),
        ("GPUs", ", ".join(env.get("gpus", ()))),
        ("Python", env.get("python") or ""),
        ("packages", ", ".join(f"{k} {v}" for k, v in sorted(env["packages"].items()))),
        *((f"${name}", text or '""') for name, text in env.get("variables", {}).items()),
        *((name, str(text)) for name, text in env.get("settings", {}).items()),
    ]
    return [row for row in rows if row[1]][: limits.lines]
