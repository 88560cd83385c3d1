"""How long a step takes, told from the calls that were timed."""

from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from perfdoctor.observe.agent.callers import by_caller, jitted_anew, key_of, outermost
from perfdoctor.observe.agent.periods import period_of
from perfdoctor.observe.agent.timing import Timed

OUTLYING = 3.0
"""The factor of the median from which on a step is an outlier: it holds something else, an
evaluation or a checkpoint."""
FEWEST_STEPS = 3
"""Steps that tell a usual length."""


@dataclass(frozen=True)
class Span:
    """How long the steps of one thread's calls took."""

    step_ms: float
    steps: int
    covered: float
    threads: int
    rare_ms: float
    """The part of `step_ms` that is done now and then: an evaluation, a checkpoint."""
    period: int
    """The number of calls of a step."""
    between_ms: float | None = None
    """What a step takes outside of its calls; None where several threads make them."""


def span_of(
    calls: Sequence[Timed], begin_ns: int, end_ns: int, aside: Collection[int] = ()
) -> Span | None:
    """The time of a step; between the two moments so many calls were computed.

    `aside`: the numbers of functions that are no part of a step.
    """
    calls = [  # some come while it is ended
        each for each in calls if each.end_ns <= end_ns and each.function.number not in aside
    ]
    callers = [outermost(each) for each in by_caller(calls)]
    if not callers:
        return None
    anew = jitted_anew([call.function for call in calls])
    main = callers[0]
    sequence = [key_of(call.function, anew) for call in main]
    period = period_of(sequence)
    if period is None:
        return None
    anchors = anchors_of(sequence, period)
    count = round(sum(map(len, callers)) / period) if len(callers) > 1 else len(anchors)
    step_ms = (end_ns - begin_ns) / max(1, count) / 1e6
    begins = [main[index].begin_ns for index in anchors]
    return Span(
        step_ms=step_ms,
        steps=count,
        covered=min(1.0, len(anchors) * period / len(main)) if len(callers) == 1 else 1.0,
        threads=len(callers),
        rare_ms=rare_ms(begins, begin_ns, end_ns) if len(callers) == 1 else 0.0,
        period=period,
        between_ms=between_ms(main) / len(anchors) if len(callers) == 1 else None,
    )


def between_ms(calls: Sequence[Timed]) -> float:
    """From the end of each call of a thread to the begin of the next one, in all."""
    return sum(max(0, after.begin_ns - before.end_ns) for before, after in pairwise(calls)) / 1e6


def rare_ms(begins: Sequence[int], begin_ns: int, end_ns: int) -> float:
    """What a step takes in the mean more than one takes that holds nothing special.

    `begins`: of the steps; only where the host does not run ahead do they tell how long each took.
    """
    if len(begins) <= FEWEST_STEPS:
        return 0.0
    usual_ns = median(later - earlier for earlier, later in pairwise(begins))
    special = [
        max(0, min(later, end_ns) - max(earlier, begin_ns))  # it may have begun before
        for earlier, later in pairwise(begins)
        if later - earlier > OUTLYING * usual_ns
    ]
    typical_ns = (end_ns - begin_ns - sum(special)) / max(1, len(begins) - len(special))
    typical_ns = max(typical_ns, usual_ns / OUTLYING)  # calls made ahead do not tell it
    return max(0.0, (end_ns - begin_ns) / len(begins) - typical_ns) / 1e6


def anchors_of(sequence: Sequence[Hashable], period: int) -> list[int]:
    """The places of the calls that are made once a step, or of each n-th one."""
    often = Counter(sequence)
    once = [key for key, count in often.items() if abs(count * period - len(sequence)) <= period]
    if once:
        return [index for index, key in enumerate(sequence) if key == once[0]]
    key, count = often.most_common(1)[0]
    each = max(1, round(count * period / len(sequence)))
    return [index for index, found in enumerate(sequence) if found == key][::each]
