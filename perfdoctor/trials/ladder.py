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
        if (tried := instead_of(laboratory, base, each)) is not None:
            found.append(tried)
            base = [each]
            continue
        tried = laboratory.on_top(base, each) if base else None
        found += [tried] if tried is not None else []
        if tried is None or laboratory.may_be_worth(tried):
            base.append(each)
    return found


def instead_of(laboratory: Laboratory, base: Sequence[Rung], other: Rung) -> Tried | None:
    """That the only one of `base` gains nothing more on top of the other; None if it does, or has
    no need to be doubted.
    """
    changes_training = [fix.changes_results == "training" for _, fix in (*base, other)]
    if changes_training != [True, False]:
        return None
    tried = laboratory.on_top([other], base[0])
    return None if tried is None or laboratory.may_be_worth(tried) else tried
