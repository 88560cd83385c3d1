"""What a check answers, and the Report (`perfdoctor.report/1`) that is made of the answers."""

from typing import Any, Literal

from msgspec import Struct

from perfdoctor.schema.observation import TargetKind

Kind = Literal["issue", "hint", "ok", "not-applicable", "not-measured", "crashed"]
Scalar = bool | int | float | str


class Change(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a machine can change about a target before it runs it."""

    env: dict[str, str | None] = {}
    """Environment variables to set; None: to remove."""
    workload: dict[str, Scalar] = {}
    """Fields of the workload, by dotted name: `data.prefetch`."""


class Evidence(Struct, frozen=True, kw_only=True):
    """One fact that a finding rests on."""

    name: str
    value: Scalar | None
    unit: str
    source: str
    """file:line, counter or event that it was read from."""


class Fix(Struct, frozen=True, kw_only=True):
    """What to do about a finding."""

    summary: str
    how: str
    """A line to paste, or the thing to do."""
    change: Change | None = None
    changes_results: Literal["no", "numerics", "training"] = "no"
    """Whether the trained model may differ: by rounding, or as by another hyper-parameter."""


class Gain(Struct, frozen=True, kw_only=True):
    """What a fix is worth: throughput with it over throughput without it, 95 % interval."""

    speedup: float
    low: float
    high: float
    basis: Literal["measured", "estimated"]


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
