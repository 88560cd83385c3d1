"""A Benchmark as Markdown: for a comment on a pull request, or `$GITHUB_STEP_SUMMARY`."""

from collections.abc import Iterator

from perfdoctor.report.benchmark.words import LABELS, cells, change, exact_change, sentence
from perfdoctor.schema.benchmark import Benchmark

MARKS = {
    "regressed": "🔴",
    "pass": "🟢",
    "improved": "🔵",
    "inconclusive": "🟡",
    "incomparable": "⚪",
}


def render(benchmark: Benchmark) -> str:
    """The verdict, a table, and what lies behind it."""
    return "\n".join(lines(benchmark)) + "\n"


def lines(benchmark: Benchmark) -> Iterator[str]:
    """Line by line."""
    yield f"### perfdoctor bench `{benchmark.target.name}`"
    yield ""
    comparison = benchmark.comparison
    if comparison is not None:
        yield f"{MARKS[comparison.verdict]} **{escaped(sentence(benchmark))}**"
        yield ""
    yield from table(benchmark)
    if comparison is not None:
        for each in comparison.exact:
            yield f"- {escaped(exact_change(each))}"
        for cause in comparison.causes:
            yield f"- {escaped(cause)}"
    for warning in benchmark.warnings:
        yield f"- ⚠️ {escaped(warning)}"


def table(benchmark: Benchmark) -> Iterator[str]:
    """A row for each metric; its change, where there is a comparison."""
    comparison, known = benchmark.comparison, {each.name: each for each in benchmark.metrics}
    changes = {each.name: each for each in comparison.metrics} if comparison else {}
    heading = ["metric", "value", "95 % interval", *(["change", "verdict"] if comparison else [])]
    yield f"| {' | '.join(heading)} |"
    yield f"|{'---|' * len(heading)}"
    for name, label in LABELS.items():
        if name not in known:
            continue
        row = [label, *cells(known[name])]
        if comparison:
            each = changes.get(name)
            row += [change(each), each.verdict or ""] if each else ["", ""]
        yield f"| {' | '.join(map(escaped, row))} |"
    yield ""


def escaped(text: str) -> str:
    """Without what Markdown would take for its own."""
    for mark in "\\|`*_<>[]":
        text = text.replace(mark, f"\\{mark}")
    return " ".join(text.split())
