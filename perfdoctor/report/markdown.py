"""The Report as GitHub-flavoured Markdown: for a comment, or `$GITHUB_STEP_SUMMARY`."""

from collections.abc import Iterator

from perfdoctor.report.gfm import (
    LIMIT_BYTES,
    block,
    code,
    escaped,
    fitting,
    folded,
    left_out,
    shortened,
    table,
)
from perfdoctor.report.words import (
    GROUPS,
    advice,
    busiest,
    cost,
    distance,
    gain_text,
    heading,
    scatter,
    sentence,
    share_of,
    value,
)
from perfdoctor.schema.report import Finding, Report
from perfdoctor.schema.summary import StepSummary

COLUMNS = ("#", "cause", "costs a step", "its fix gains", "the fix")
MOST_ROWS, MOST_FACTS = 50, 20
"""Rows of a table, and facts of a finding, that are shown at most."""
FOR_THE_END = 400
"""Bytes that are kept for what is said of parts that are left out."""


def render(report: Report) -> str:
    """What was found, a table of the causes, and what lies behind them, folded."""
    head = [f"### perfdoctor check {code(shortened(report.target.name))}", "", verdict(report), ""]
    if report.findings:
        head += [causes(report), ""]
    room = LIMIT_BYTES - len("\n".join(head).encode()) - FOR_THE_END
    parts, left = fitting([*details(report), *behind(report)], room)
    parts += [left_out(left)] if left else []
    return "\n".join([*head, *parts]) + "\n"


def verdict(report: Report) -> str:
    """What was found, in a sentence or two."""
    mark = "🔴" if report.findings else "🟢" if report.steps else "⚪"
    return f"{mark} **{escaped(f'{distance(report.steps)}{sentence(report)}')}**"


def causes(report: Report) -> str:
    """A row for each finding."""
    time_ms = report.steps["time_ms"] if report.steps else None
    rows = [
        (
            str(each.rank),
            shortened(each.check),
            cost(each, time_ms),
            gain_text(each.gain),
            shortened(each.fix.how),
        )
        for each in report.findings[:MOST_ROWS]
    ]
    more = len(report.findings) - len(rows)
    return table(COLUMNS, rows) + (f"\n\nand {more} more" if more else "")


def details(report: Report) -> Iterator[str]:
    """A fold for each finding: what was seen, the fix to copy, the evidence."""
    for each in report.findings:
        title = f"{each.rank}. {each.check}: {shortened(each.summary)}"
        yield folded(title, "\n\n".join(behind_finding(each)))


def behind_finding(finding: Finding) -> Iterator[str]:
    """Paragraph by paragraph."""
    yield escaped(finding.summary)
    if finding.location:
        yield code(f"{finding.location.file}:{finding.location.line}")
    yield escaped(advice(finding))
    if finding.fix.how.strip():
        yield block(finding.fix.how)
    facts = [(each.name, value(each), each.source) for each in finding.evidence[:MOST_FACTS]]
    if facts:
        yield table(("seen", "value", "where"), facts)


def behind(report: Report) -> Iterator[str]:
    """Where a step's time goes, what the checks say, and the machine."""
    if report.steps:
        yield folded("Where a step's time goes", step(report.steps))
    rows = [
        (shortened(each.id), GROUPS.get(each.outcome, each.outcome), shortened(each.summary))
        for each in report.checks
    ]
    yield folded(f"All {len(rows)} checks", table(("check", "outcome", ""), rows))
    yield f"<sub>{escaped(heading(report))}</sub>"


def step(steps: StepSummary) -> str:
    """Its parts, and how steps differ."""
    total = sum(steps["parts_ms"].values())
    longest_first = sorted(steps["parts_ms"].items(), key=lambda part: -part[1])
    rows = [
        (name, f"{ms:.2f} ms", f"{share_of(ms, total):.0%}", busiest(steps, name))
        for name, ms in longest_first
        if ms > 0
    ]
    return f"{table(('part', 'a step', 'share', 'where'), rows)}\n\n{escaped(scatter(steps))}"
