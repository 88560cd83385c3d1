"""What fixes gain on top of better ones: which have the same cause, and which of them is it."""

from collections.abc import Sequence

from perfdoctor.schema.fix import Fix, Tried
from perfdoctor.trials.trial import Laboratory

Rung = tuple[str, Fix]
"""A check, and its fix."""


def remaining(laboratory: Laboratory, helped: Sequence[Rung]) -> list[Tried]:
    """What each fix but the first gains on top of those before it, as far as that can be told.

    `helped`: the best first. One that gains nothing more had the same cause, and is not in place
    for those after it.
    """
    found: list[Tried] = []
    base: list[Rung] = []
    for each in helped:
        if not laboratory.can_go_on([*base, each]):
            continue
        if is_doubtful(base, each):
            tried, base = one_or_both(laboratory, base[0], each)
            found += tried
            continue
        rest = laboratory.on_top(base, each) if base else None
        found += [rest] if rest is not None else []
        if rest is None or laboratory.may_be_worth(rest):
            base.append(each)
    return found


def is_doubtful(base: Sequence[Rung], other: Rung) -> bool:
    """Whether the only one of `base` changes what is trained, and the other does not."""
    return [fix.changes_results == "training" for _, fix in (*base, other)] == [True, False]


def one_or_both(laboratory: Laboratory, larger: Rung, same: Rung) -> tuple[list[Tried], list[Rung]]:
    """Of a fix that changes what is trained, and one that does not: what was tried of them on top
    of each other, and which are in place for those after them.

    One that gains nothing more on top of the other has its cause in it. If both do, a step's time
    is given first to the one that trains the same, and the other gains what remains.
    """
    of_larger = laboratory.on_top([same], larger)
    if of_larger is not None and not laboratory.may_be_worth(of_larger):
        return [of_larger], [same]
    of_same = laboratory.on_top([larger], same)
    if of_same is not None and not laboratory.may_be_worth(of_same):
        return [each for each in (of_larger, of_same) if each is not None], [larger]
    if of_larger is None:
        return [of_same] if of_same is not None else [], [larger, same]
    return [of_larger], [same, larger]
