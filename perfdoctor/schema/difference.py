"""Two diagnoses side by side (`perfdoctor.difference/1`): before a change, and after it."""

from typing import Literal

from msgspec import Struct

from perfdoctor.schema.report import CheckResult, Finding, ReportTarget
from perfdoctor.schema.summary import EnvironmentSummary, StepSummary

DIFFERENCE_SCHEMA = "perfdoctor.difference/1"
"""What stands in the key `schema` of a saved comparison of reports."""


class Side(Struct, frozen=True, kw_only=True):
    """What is told of one of the two."""

    name: str
    """The file that it was read from."""
    created: str
    target: ReportTarget
    environment: EnvironmentSummary
    steps: StepSummary | None


class Stayed(Struct, frozen=True, kw_only=True):
    """A cause that both have."""

    before: Finding
    after: Finding


class Difference(Struct, frozen=True, kw_only=True):
    """What changed from one diagnosis to the other; every renderer reads this and nothing else."""

    schema: Literal["perfdoctor.difference/1"]
    perfdoctor: str
    before: Side
    after: Side
    speedup: float | None
    """Throughput after, over throughput before: of two runs, without an interval; None: one of
    them measured no steps."""
    gone: tuple[Finding, ...]
    """Causes that were found before, and that are no cause any more."""
    new: tuple[Finding, ...]
    stayed: tuple[Stayed, ...]
    unclear: tuple[CheckResult, ...]
    """Checks that found something before, and could not look after: what they say after."""
    cautions: tuple[str, ...]
    """Why the two can hardly be compared, if so."""
