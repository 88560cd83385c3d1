"""A Benchmark as a page in one file."""

from collections.abc import Iterator

from perfdoctor.report.benchmark.plots import plots
from perfdoctor.report.benchmark.terminal import heading, program
from perfdoctor.report.benchmark.words import (
    LABELS,
    cells,
    change,
    exact_change,
    sentence,
)
from perfdoctor.report.html.page import Limits, filled, fitting
from perfdoctor.schema.benchmark import Benchmark, Comparison

TONES = {"regressed": "bad", "pass": "good", "improved": "good"}
"""The page's colours of verdicts; any other verdict is shown as a doubt."""


def render(benchmark: Benchmark) -> str:
    """One file that asks for nothing from the network."""
    return fitting(lambda limits: page(benchmark, limits))


def page(benchmark: Benchmark, limits: Limits) -> str:
    """The page, with as much in it as the limits allow."""
    found = benchmark.comparison
    return filled(
        "benchmark.html.j2",
        limits,
        title=f"perfdoctor bench: {benchmark.target.name}",
        heading="Benchmark of",
        name=benchmark.target.name,
        machine=heading(benchmark),
        version=benchmark.perfdoctor,
        created=benchmark.created,
        answer=sentence(benchmark) or f"{counted(len(benchmark.launches))}, no comparison",
        tone=TONES.get(found.verdict, "doubt") if found else "",
        shortened="",
        warnings=benchmark.warnings[: limits.lines],
        rows=list(metric_rows(benchmark))[: limits.lines],
        compared=found is not None,
        notes=notes(found)[: limits.lines] if found else [],
        program=program(benchmark.exact) if benchmark.exact else "",
        figures=list(plots(benchmark, limits)),
    )


def counted(launches: int) -> str:
    """How many there were."""
    return f"{launches} fresh launch{'es' * (launches != 1)}"


def metric_rows(benchmark: Benchmark) -> Iterator[tuple[str, str, str, str, str]]:
    """Name, value, interval, change and verdict of each metric."""
    known = {each.name: each for each in benchmark.metrics}
    found = benchmark.comparison
    changes = {each.name: each for each in found.metrics} if found else {}
    for name, label in LABELS.items():
        if name in known:
            each = changes.get(name)
            yield (
                label,
                *cells(known[name]),
                change(each) if each else "",
                (each.verdict or "") if each else "",
            )


def notes(found: Comparison) -> list[str]:
    """What no noise touches and changed, and what the two diagnoses differ in."""
    return [*map(exact_change, found.exact), *found.causes]
