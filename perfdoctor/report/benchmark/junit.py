"""A Benchmark as JUnit XML: a test case for each metric."""

from typing import Any

from perfdoctor.report.benchmark.words import LABELS, cells, change, exact_change, sentence
from perfdoctor.report.suite import junitparser, suite
from perfdoctor.schema.benchmark import Benchmark, Metric


def render(benchmark: Benchmark) -> str:
    """A metric that regressed has failed; one of which nothing could be said was skipped."""
    cases = (case(benchmark, metric) for metric in benchmark.metrics)
    return suite(f"perfdoctor bench {benchmark.target.name}", cases)


def case(benchmark: Benchmark, metric: Metric) -> Any:
    """One metric with its interval."""
    made = junitparser().TestCase(LABELS.get(metric.name, metric.name), benchmark.target.name)
    value, interval = cells(metric)
    made.system_out = f"{value} ({interval})"
    made.result = result(benchmark, metric.name)
    return made


def result(benchmark: Benchmark, name: str) -> list[Any]:
    """The result of one metric's test case; empty if it passed."""
    library = junitparser()
    found = benchmark.comparison
    if found is None:
        return []
    if found.verdict == "incomparable":
        return [library.Skipped(found.summary)]
    each = next((each for each in found.metrics if each.name == name), None)
    if each is None or each.verdict in (None, "pass", "improved"):
        return []
    if each.verdict == "inconclusive":
        return [library.Skipped(found.summary)]
    failure = library.Failure(change(each))
    failure.text = "\n".join([sentence(benchmark), *map(exact_change, found.exact), *found.causes])
    return [failure]
