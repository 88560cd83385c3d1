"""A Benchmark as workflow commands: annotations that GitHub shows on a pull request."""

from perfdoctor.report.annotation import Level, annotation
from perfdoctor.report.benchmark.words import exact_change, sentence
from perfdoctor.schema.benchmark import Benchmark

TITLE = "perfdoctor bench"
"""The title of each annotation."""
LEVELS: dict[str, Level] = {
    "regressed": "error",
    "inconclusive": "warning",
    "incomparable": "warning",
    "pass": "notice",
    "improved": "notice",
}
"""How grave an annotation is, by the verdict."""


def render(benchmark: Benchmark) -> str:
    """A line for the verdict, and one for each warning."""
    lines = []
    found = benchmark.comparison
    if found is not None:
        details = [sentence(benchmark), *map(exact_change, found.exact), *found.causes]
        lines.append(annotation(LEVELS[found.verdict], "\n".join(details), title=TITLE))
    lines += [annotation("warning", each, title=TITLE) for each in benchmark.warnings]
    return "".join(f"{line}\n" for line in lines)
