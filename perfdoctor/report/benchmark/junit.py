"""A Benchmark as JUnit XML: a test case for each metric."""

from importlib import import_module
from typing import Any

from perfdoctor.report.benchmark.words import LABELS, cells, change, exact_change, sentence
from perfdoctor.schema.benchmark import Benchmark
from perfdoctor.schema.errors import UsageError


def render(benchmark: Benchmark) -> str:
    """A metric that regressed has failed; one of which nothing could be said was skipped."""
    try:
        junitparser: Any = import_module("junitparser")
    except ModuleNotFoundError:
        raise UsageError("junitparser is missing; pip install 'perfdoctor[junit]'") from None
    suite = junitparser.TestSuite(f"perfdoctor bench {benchmark.target.name}")
    for metric in benchmark.metrics:
        name = LABELS.get(metric.name, metric.name)
        case = junitparser.TestCase(name, benchmark.target.name)
        value, interval = cells(metric)
        case.system_out = f"{value} ({interval})"
        case.result = result(benchmark, metric.name, junitparser)
        suite.add_testcase(case)
    xml = junitparser.JUnitXml()
    xml.add_testsuite(suite)
    return str(xml.tostring().decode()) + "\n"


def result(benchmark: Benchmark, name: str, junitparser: Any) -> list[Any]:
    """Of one metric's test case; nothing if it passed."""
    found = benchmark.comparison
    if found is None:
        return []
    if found.verdict == "incomparable":
        return [junitparser.Skipped(found.summary)]
    each = next((each for each in found.metrics if each.name == name), None)
    if each is None or each.verdict in (None, "pass", "improved"):
        return []
    if each.verdict == "inconclusive":
        return [junitparser.Skipped(found.summary)]
    failure = junitparser.Failure(change(each))
    failure.text = "\n".join([sentence(benchmark), *map(exact_change, found.exact), *found.causes])
    return [failure]
