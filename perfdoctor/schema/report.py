"""What a check answers, and the Report (`perfdoctor.report/1`) that is made of the answers."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from perfdoctor.schema.figures import (
    Excerpt,
    LayerShare,
    MemoryCurve,
    SourceLines,
    Sweep,
    TriedFix,
)
from perfdoctor.schema.fix import Fix, Gain, Scalar
from perfdoctor.schema.observation import TargetKind
from perfdoctor.schema.summary import EnvironmentSummary, StepSummary

REPORT_SCHEMA = "perfdoctor.report/1"
"""What stands in the key `schema` of a report."""
Kind = Literal["issue", "hint", "ok", "not-applicable", "not-measured", "crashed"]


class Evidence(Struct, frozen=True):
    """One fact that a finding rests on."""

    name: str
    value: Scalar | None
    unit: str
    source: str
    """file:line, counter or event that it was read from."""


class Outcome(Struct, frozen=True, kw_only=True):
    """What a check says of an Observation."""

    kind: Kind
    summary: str
    evidence: tuple[Evidence, ...] = ()
    fixes: tuple[Fix, ...] = ()
    """The first is the one to name if nothing is tried; a trial picks the best."""
    sweep: bool = False
    """The fixes are the values of one sweep: tried in order for as long as the next is better."""
    gain: Gain | None = None
    """Estimated from the Observation."""


class Location(Struct, frozen=True, kw_only=True):
    """A line of the user's repository."""

    file: str
    """From the repository's root, with / between its parts."""
    line: Annotated[int, Meta(ge=1)]


class Finding(Struct, frozen=True, kw_only=True):
    """An issue, in its place among the others."""

    check: str
    rank: Annotated[int, Meta(ge=1)]
    summary: str
    evidence: tuple[Evidence, ...]
    fix: Fix
    gain: Gain | None
    remaining_gain: Gain | None = None
    """What its fix still gains once those of the better findings are made; None: not measured. The
    same as `gain` where that is told on top of the fix of another finding, see its summary."""
    location: Location | None = None
    """The line on which it stands; None: none of the lines that it names is in the repository."""
    documentation: str = ""
    """What the check finds, why that costs, how it is measured and fixed; plain text."""


class CheckResult(Struct, frozen=True, kw_only=True):
    """One line for each check of the catalogue."""

    id: str
    outcome: Kind
    summary: str


class ReportTarget(Struct, frozen=True, kw_only=True):
    """What was examined."""

    kind: TargetKind
    name: str
    args: tuple[str, ...]


class Report(Struct, frozen=True, kw_only=True):
    """The whole answer; every renderer reads this and nothing else."""

    schema: Literal["perfdoctor.report/1"]
    perfdoctor: str
    created: str
    target: ReportTarget
    environment: EnvironmentSummary
    steps: StepSummary | None
    findings: tuple[Finding, ...]
    combined_gain: Gain | None
    checks: tuple[CheckResult, ...]
    timeline: Excerpt | None = None
    """None: no steps were traced, or the observation is older than this part."""
    memory: MemoryCurve | None = None
    tried: tuple[TriedFix, ...] = ()
    """All fixes that were tried, in the order in which the Observation has them."""
    sweeps: tuple[Sweep, ...] = ()
    layers: tuple[LayerShare, ...] = ()
    """Layers of the forward pass, the costliest first."""
    sources: tuple[SourceLines, ...] = ()
    """For the places that findings name, as far as they lie in the user's own program."""
