"""What a check answers, and the Report (`perfdoctor.report/1`) that is made of the answers."""

from typing import Any, Literal

from msgspec import Struct

from perfdoctor.schema.fix import Fix, Gain, Scalar
from perfdoctor.schema.observation import TargetKind

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
    ladder: bool = False
    """The fixes are rungs of one ladder: tried in order for as long as the next is better."""
    gain: Gain | None = None
    """Estimated from the Observation."""


class Finding(Struct, frozen=True, kw_only=True):
    """An issue, in its place among the others."""

    check: str
    rank: int
    summary: str
    evidence: tuple[Evidence, ...]
    fix: Fix
    gain: Gain | None
    remaining_gain: Gain | None = None
    """What its fix still gains once those of the better findings are made; None: not measured."""


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
    environment: dict[str, Any]
    steps: dict[str, Any] | None
    findings: tuple[Finding, ...]
    combined_gain: Gain | None
    checks: tuple[CheckResult, ...]
