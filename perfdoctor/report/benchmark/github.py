"""A Benchmark as workflow commands: annotations that GitHub shows on a pull request."""

from perfdoctor.report.benchmark.words import exact_change, sentence
from perfdoctor.schema.benchmark import Benchmark

LEVELS = {
    "regressed": "error",
    "inconclusive": "warning",
    "incomparable": "warning",
    "pass": "notice",
    "improved": "notice",
}


def render(benchmark: Benchmark) -> str:
    """A line for the verdict, and one for each warning."""
    lines = []
    found = benchmark.comparison
    if found is not None:
        details = [sentence(benchmark), *map(exact_change, found.exact), *found.causes]
        lines.append(annotation(LEVELS[found.verdict], "\n".join(details)))
    lines += [annotation("warning", each) for each in benchmark.warnings]
    return "".join(f"{line}\n" for line in lines)


def annotation(level: str, text: str) -> str:
    """As the runner reads it from the log; % and line ends are escaped as it asks for."""
    for raw, escaped in (("%", "%25"), ("\r", "%0D"), ("\n", "%0A")):
        text = text.replace(raw, escaped)
    return f"::{level} title=perfdoctor bench::{text}"
