"""Why a candidate is slower: what its diagnosis has that the baseline's has not."""

from collections.abc import Sequence

from perfdoctor.answers import place
from perfdoctor.catalogue import Check
from perfdoctor.report.summary import PARTS, PLACES
from perfdoctor.schema.observation import Observation
from perfdoctor.schema.report import Kind

GRAVE: dict[Kind, int] = {"issue": 2, "hint": 1}
"""How grave an outcome of a check is; others are no finding."""
WORTH = 0.02
"""The share of the step by which a part of it must have grown to be named."""


def causes(before: Observation, after: Observation, catalogue: Sequence[Check]) -> tuple[str, ...]:
    """Findings that are new or graver, then the parts of the step that grew; each a line."""
    return (*new_findings(before, after, catalogue), *grown_parts(before, after))


def new_findings(before: Observation, after: Observation, catalogue: Sequence[Check]) -> list[str]:
    """What the checks find that is new or graver; issues first, and those first whose fix gains
    most.
    """
    found = []
    for check in catalogue:
        old, new = check(before), check(after)
        gravity = GRAVE.get(new.kind, 0)
        if gravity > GRAVE.get(old.kind, 0):
            gain = new.gain.speedup if new.gain else 1.0
            found.append((-gravity, -gain, f"{check.id}: {new.summary}"))
    return [text for *_, text in sorted(found)]


def grown_parts(before: Observation, after: Observation) -> list[str]:
    """What a step takes longer for, and where in the code."""
    old, new = before.steps, after.steps
    if old is None or new is None:
        return []
    found = []
    for name, field in PARTS.items():
        more_ms = getattr(new, field) - getattr(old, field)
        if more_ms > WORTH * old.time_ms:
            where = next(iter(getattr(new, PLACES[name])), None) if name in PLACES else None
            at = f" at {place(where.file, where.line)}" if where else ""
            found.append((-more_ms, f"{name} +{more_ms:.2g} ms a step{at}"))
    return [text for _, text in sorted(found)]
