"""Several reasons for one answer, each with what to do about it."""

from collections.abc import Iterable, Sequence

from perfdoctor import Evidence, Fix, Outcome, hint

Reason = tuple[str, Fix]
"""What is wrong, and what to do."""


def joined(reasons: Iterable[Reason]) -> str:
    """All of them in one sentence."""
    return "; ".join(text for text, _ in reasons)


def fixes_of(reasons: Iterable[Reason]) -> list[Fix]:
    """What to do about each."""
    return [fix for _, fix in reasons]


def hint_of(reasons: Sequence[Reason], evidence: Sequence[Evidence]) -> Outcome:
    """A hint that tells all of them."""
    return hint(joined(reasons), evidence, fixes_of(reasons))
