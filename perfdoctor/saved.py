"""Reads again what was saved: reports, observations, benchmarks, told by their `schema`."""

from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from perfdoctor.bench.against import read_benchmark
from perfdoctor.bench.saved import with_saved
from perfdoctor.catalogue import checks
from perfdoctor.doctor import diagnosed
from perfdoctor.files import read_saved, schema_of
from perfdoctor.report.sides import side_by_side
from perfdoctor.schema.benchmark import BENCHMARK_SCHEMA, Benchmark
from perfdoctor.schema.difference import DIFFERENCE_SCHEMA, Difference
from perfdoctor.schema.errors import UsageError
from perfdoctor.schema.fix import MIN_GAIN
from perfdoctor.schema.observation import OBSERVATION_SCHEMA
from perfdoctor.schema.report import REPORT_SCHEMA, Report, ReportTarget
from perfdoctor.targets.resolve import read_observation

THRESHOLD = 0.05
"""The smallest slowdown that matters, as a share, if nobody says otherwise."""
Told = Report | Benchmark | Difference


def read(file: Path) -> Told:
    """What was saved there; an observation is diagnosed anew.

    Raises:
        UsageError: it can't be read, or is none of these.
    """
    schema = schema_of(file, "report, observation or benchmark of perfdoctor")
    if schema not in READERS:
        raise UsageError(f"{file}: schema is {schema!r}; expected {', '.join(map(repr, READERS))}")
    return READERS[schema](file)


def diagnosis(file: Path) -> Report:
    """What the checks say of a saved observation; as old as that is."""
    seen = read_observation(file)
    target = ReportTarget(kind="observation", name=str(file), args=())
    return replace(diagnosed(seen, checks(), MIN_GAIN, target), created=seen.created)


READERS: dict[str, Callable[[Path], Told]] = {
    REPORT_SCHEMA: lambda file: read_saved(file, Report, REPORT_SCHEMA, "report"),
    OBSERVATION_SCHEMA: diagnosis,
    BENCHMARK_SCHEMA: read_benchmark,
    DIFFERENCE_SCHEMA: lambda file: read_saved(
        file, Difference, DIFFERENCE_SCHEMA, "comparison of reports"
    ),
}
"""How a file is read, by what stands in its key `schema`."""


def compared(before: Path, after: Path) -> Told:
    """Two of a kind side by side; benchmarks as `perfdoctor compare` does it.

    Raises:
        UsageError: one can't be read, or the two are of different kinds.
    """
    old, new = read(before), read(after)
    if isinstance(old, Report) and isinstance(new, Report):
        return side_by_side(old, new, (str(before), str(after)))
    if isinstance(old, Benchmark) and isinstance(new, Benchmark):
        return with_comparison(old, new, str(before))
    raise UsageError(
        f"{before} and {after} can't stand side by side; expected two benchmarks, or two reports "
        "or observations"
    )


def with_comparison(old: Benchmark, new: Benchmark, against: str) -> Benchmark:
    """The newer one, compared with the older one by their numbers alone."""
    return replace(new, comparison=with_saved(old, new, against, THRESHOLD))
