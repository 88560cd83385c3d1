"""From calls that were timed and probed to those of a step, and the roles of their arguments."""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

from perfdoctor.injection.calls import Function
from perfdoctor.observe.agent.calls import Form, Probed, Prober, Token
from perfdoctor.observe.agent.periods import instances_of, period_of
from perfdoctor.observe.agent.timing import Timed
from perfdoctor.schema.calls import Call, Leaf, Role

OUTLYING = 3.0
"""Times the median: a step that took longer holds something else, an evaluation or a checkpoint."""
REMADE = 8
"""Functions of one origin from which on they are taken for one that is jitted anew in each step."""
TRIM = 0.2
"""Of the gaps between calls, at each end: as of all that perfdoctor times."""
FEWEST_STEPS = 3
"""Steps between which roles are told."""
CALLER_SHARE = 0.1
"""A thread that makes fewer calls than this share of the busiest one's is no other caller."""


@dataclass(frozen=True)
class Span:
    """How long the steps of one thread's calls took."""

    step_ms: float
    steps: int
    covered: float
    threads: int
    rare_ms: float
    """Of `step_ms`, what is done now and then: an evaluation, a checkpoint."""


def key_of(function: Function, made: Counter[Hashable]) -> Hashable:
    """By what a call of it repeats another one."""
    return function.origin if made[function.origin] > REMADE else function.number


def made_of(functions: Sequence[Function]) -> Counter[Hashable]:
    """How many functions of each origin there are."""
    distinct = {each.number: each for each in functions}
    return Counter(each.origin for each in distinct.values())


def outermost(calls: Sequence[Timed]) -> list[Timed]:
    """Without those made while another one was traced."""
    found: list[Timed] = []
    for call in sorted(calls, key=lambda each: (each.begin_ns, -each.end_ns)):
        if not found or call.begin_ns >= found[-1].end_ns:
            found.append(call)
    return found


def by_caller(calls: Sequence[Timed | Probed]) -> list[list[Timed | Probed]]:
    """The calls of each thread that makes its part of them, the busiest first."""
    threads: dict[int, list[Timed | Probed]] = {}
    for call in calls:
        threads.setdefault(call.thread, []).append(call)
    ordered = sorted(threads.values(), key=len, reverse=True)
    return [each for each in ordered if len(each) >= CALLER_SHARE * len(ordered[0])]


def span_of(calls: Sequence[Timed], begin_ns: int, end_ns: int) -> Span | None:
    """The time of a step; between the two moments so many calls were computed."""
    calls = [each for each in calls if each.end_ns <= end_ns]  # some come while it is ended
    callers = [outermost(each) for each in by_caller(calls)]  # type: ignore[arg-type]
    if not callers:
        return None
    made = made_of([call.function for call in calls])
    main = callers[0]
    sequence = [key_of(call.function, made) for call in main]
    period = period_of(sequence) if len(callers) == 1 else 1
    if period is None:
        return None
    anchors = anchors_of(sequence, period)
    count = sum(map(len, callers)) if len(callers) > 1 else len(anchors)
    step_ms = (end_ns - begin_ns) / max(1, count) / 1e6
    begins = [main[index].begin_ns for index in anchors]
    return Span(
        step_ms=step_ms,
        steps=count,
        covered=min(1.0, len(anchors) * period / len(main)) if len(callers) == 1 else 1.0,
        threads=len(callers),
        rare_ms=rare_ms(begins, begin_ns, end_ns) if len(callers) == 1 else 0.0,
    )


def rare_ms(begins: Sequence[int], begin_ns: int, end_ns: int) -> float:
    """What a step takes in the mean more than one takes that holds nothing special.

    `begins`: of the steps; only where the host does not run ahead do they tell how long each took.
    """
    lengths = [later - earlier for earlier, later in pairwise(begins)]
    if len(lengths) < FEWEST_STEPS:
        return 0.0
    usual = median(lengths)
    special = [length for length in lengths if length > OUTLYING * usual]
    typical_ns = (end_ns - begin_ns - sum(special)) / max(1, len(begins) - len(special))
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


@dataclass(frozen=True)
class Probe:
    """The calls of a step."""

    calls: tuple[Call, ...]
    keys: tuple[Hashable, ...]
    """Of their functions: by what they are known again."""
    thread: int
    """Which makes them."""


def probe_of(prober: Prober) -> Probe | None:
    """The roles of the arguments, from one step to the next; None where no step was told."""
    callers = by_caller(prober.calls)
    if not callers:
        return None
    main: list[Probed] = sorted(callers[0], key=lambda each: each.begin_ns)  # type: ignore[arg-type]
    made = made_of([call.function for call in main])
    gaps = [0.0] + [float(b.begin_ns - a.end_ns) for a, b in pairwise(main)]
    sequence = [key_of(call.function, made) for call in main]
    starts = instances_of(sequence, gaps)
    period = period_of(sequence)
    if period is None or len(starts) < FEWEST_STEPS:
        return None
    slots = {start + slot: slot for start in starts for slot in range(period)}
    found = [
        call_of(prober, main, [start + slot for start in starts], slots) for slot in range(period)
    ]
    keys = tuple(sequence[starts[-1] + slot] for slot in range(period))
    return Probe(tuple(found), keys, main[0].thread)


def call_of(
    prober: Prober, main: Sequence[Probed], places: Sequence[int], slots: Mapping[int, int]
) -> Call:
    """One call of a step; `places`: where it is among all, step by step; `slots`: of all places
    that belong to steps, which call of a step is there.
    """
    sources = sources_of(main)
    form = prober.forms[main[places[-1]].function.number]
    leaves = []
    for index in range(len(form.names)):
        seen = [
            role_of(main, before, place, index, sources, slots)
            for before, place in pairwise(places)
            if len(main[place].inputs) == len(main[before].inputs) == len(form.names)
        ]
        states = [each for each in seen if each[0] == "state"]
        if states and form.kinds[index] == "host":  # of few calls it is known what they returned
            seen = states
        role, source = Counter(seen).most_common(1)[0][0] if seen else ("new", None)
        leaves.append(leaf_of(form, index, role, source))
    fair = usual_gaps([(main[place - 1], main[place]) for place in places if place > 0])
    return Call(
        function=main[places[-1]].function.name,
        leaves=tuple(leaves),
        before_ms=mean_ms([after.begin_ns - before.end_ns for before, after in fair]),
        before_cpu_ms=mean_ms([after.begin_cpu_ns - before.end_cpu_ns for before, after in fair]),
        inside_ms=mean_ms([main[place].end_ns - main[place].begin_ns for place in places]),
        inside_cpu_ms=mean_ms([main[place].inside_cpu_ns for place in places]),
    )


def usual_gaps(gaps: Sequence[tuple[Probed, Probed]]) -> list[tuple[Probed, Probed]]:
    """Of the gaps between two calls, those that hold nothing special, and none of the longest and
    of the shortest: a thread that waits for a core, or a log, makes few of them long.
    """

    def length_ns(gap: tuple[Probed, Probed]) -> int:
        return gap[1].begin_ns - gap[0].end_ns

    ordered = sorted(gaps, key=length_ns)
    usual = length_ns(ordered[len(ordered) // 2]) if ordered else 0
    fair = [gap for gap in ordered if length_ns(gap) <= max(OUTLYING * usual, usual + 1e6)]
    cut = int(TRIM * len(fair))
    return fair[cut : len(fair) - cut]


def mean_ms(values_ns: Sequence[float]) -> float:
    """0 of none."""
    return max(0.0, fmean(values_ns) / 1e6) if values_ns else 0.0


def sources_of(main: Sequence[Probed]) -> dict[int, tuple[int, int]]:
    """By the number of an object that was returned: the place of its call, and of it in there."""
    found: dict[int, tuple[int, int]] = {}
    for place, call in enumerate(main):
        for index, token in enumerate(call.outputs):
            found.setdefault(token.number, (place, index))
    return found


def role_of(
    main: Sequence[Probed],
    before: int,
    place: int,
    index: int,
    sources: Mapping[int, tuple[int, int]],
    slots: Mapping[int, int],
) -> tuple[Role, tuple[int, int] | None]:
    """Of a leaf in one step, and where it comes from: the call of a step, and its result.

    `before`: the place of the same call in the step before.
    """
    token, earlier = main[place].inputs[index], main[before].inputs[index]
    if token == earlier or (token.contents and token.contents == earlier.contents):
        return "constant", None
    source = sources.get(token.number)
    if source is None or not before <= source[0] < place:
        source = fetched_from(main, before, place, token)
    if source is not None and source[0] in slots:
        return "state", (slots[source[0]], source[1])
    return "new", None


def fetched_from(
    main: Sequence[Probed], before: int, place: int, token: Token
) -> tuple[int, int] | None:
    """The place of the call since the step before that returned the same values, and the place of
    them in there: the program has copied them to the host.
    """
    if not token.contents:
        return None
    return next(
        (
            (earlier, index)
            for earlier in range(before, place)
            for index, result in enumerate(main[earlier].outputs)
            if result.contents == token.contents
        ),
        None,
    )


def leaf_of(form: Form, index: int, role: Role, source: tuple[int, int] | None) -> Leaf:
    """One of a call's arguments."""
    return Leaf(
        argument=form.names[index],
        role=role,
        kind=form.kinds[index],  # type: ignore[arg-type]
        shape=form.shapes[index],
        dtype=form.dtypes[index],
        bytes=form.sizes_bytes[index],
        donated=form.donated[index],
        sharding=form.shardings[index],
        source=source,
    )
