"""What fixes gain on top of better ones: which have the same cause, and which of them is it."""

from collections.abc import Sequence

from perfdoctor.schema.fix import Fix, Tried
from perfdoctor.trials.trial import Laboratory

Rung = tuple[str, Fix]
"""A check, and its fix."""


def remaining(laboratory: Laboratory, helped: Sequence[Rung]) -> list[Tried]:
    """What each fix but the first gains on top of those before it, as far as that can be told.

    `helped`: the best first. One that gains nothing more had the same cause, and is not in place
    for those after it. If the best one changes what is trained, and gains nothing more on top of
    one that does not, that one is the cause.
    """
    found: list[Tried] = []
    base: list[Rung] = []
    for each in helped:
        if not laboratory.can_go_on([*base, each]):
            continue
        if is_doubtful(base, each) and (tried := laboratory.on_top([each], base[0])) is not None:
            found.append(tried)
            if not laboratory.may_be_worth(tried):
                base = [each]
                continue
        tried = laboratory.on_top(base, each) if base else None
        found += [tried] if tried is not None else []
        if tried is None or laboratory.may_be_worth(tried):
            base.append(each)
    return found


def is_doubtful(base: Sequence[Rung], other: Rung) -> bool:
    """Whether the only one of `base` changes what is trained, and the other does not."""
    return [fix.changes_results == "training" for _, fix in (*base, other)] == [True, False]
