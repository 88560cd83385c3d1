"""A Benchmark as Markdown: for a comment on a pull request, or `$GITHUB_STEP_SUMMARY`."""

from collections.abc import Iterator

from perfdoctor.report.benchmark.words import (
    LABELS,
    cells,
    change,
    counting,
    exact_change,
    sentence,
)
from perfdoctor.report.gfm import LIMIT_BYTES, code, escaped, fitting, left_out, table
from perfdoctor.schema.benchmark import Benchmark

FOR_THE_END = 200
"""Bytes that are kept for what is said of lines that are left out."""
MARKS = {
    "regressed": "🔴",
    "pass": "🟢",
    "improved": "🔵",
    "inconclusive": "🟡",
    "incomparable": "⚪",
}
"""A mark before each verdict."""


def render(benchmark: Benchmark) -> str:
    """The verdict, a table, and what lies behind it."""
    kept, left = fitting(lines(benchmark), LIMIT_BYTES - FOR_THE_END)
    return "\n".join([*kept, *([left_out(left)] if left else [])]) + "\n"


def lines(benchmark: Benchmark) -> Iterator[str]:
    """Line by line."""
    yield f"### perfdoctor bench {code(benchmark.target.name)}"
    yield ""
    comparison = benchmark.comparison
    if comparison is not None:
        yield f"{MARKS[comparison.verdict]} **{escaped(sentence(benchmark))}**"
        yield ""
    yield metrics(benchmark)
    yield ""
    if comparison is not None:
        for each in comparison.exact:
            yield f"- {escaped(exact_change(each))}"
        for cause in comparison.causes:
            yield f"- {escaped(cause)}"
    if told := counting(benchmark):
        yield f"- {escaped(told)}"
    for warning in benchmark.warnings:
        yield f"- ⚠️ {escaped(warning)}"


def metrics(benchmark: Benchmark) -> str:
    """A row for each metric; its change, where there is a comparison."""
    comparison, known = benchmark.comparison, {each.name: each for each in benchmark.metrics}
    changes = {each.name: each for each in comparison.metrics} if comparison else {}
    heading = ["metric", "value", "95 % interval", *(["change", "verdict"] if comparison else [])]
    rows = []
    for name, label in LABELS.items():
        if name not in known:
            continue
        row = [label, *cells(known[name])]
        if comparison:
            each = changes.get(name)
            row += [change(each), each.verdict or ""] if each else ["", ""]
        rows.append(row)
    return table(heading, rows)
