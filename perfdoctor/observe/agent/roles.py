"""From calls that were timed and probed to those of a step, and the roles of their arguments."""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise

from msgspec.structs import replace

from perfdoctor.observe.agent.callers import by_caller, jitted_anew, key_of
from perfdoctor.observe.agent.calls import Probed, Prober, Token
from perfdoctor.observe.agent.form import Form
from perfdoctor.observe.agent.gaps import mean_ms, usual_gaps, without_outliers
from perfdoctor.observe.agent.periods import instances_of, period_of, repeats
from perfdoctor.observe.agent.remade import with_remade
from perfdoctor.observe.agent.sizes import usual_size
from perfdoctor.observe.agent.span import FEWEST_STEPS, Span, span_of
from perfdoctor.observe.agent.timing import Timer
from perfdoctor.schema.calls import Call, Leaf, Role

SELDOM = 0.25
"""How often a function is called at most that is called now and then, by the one called the most
often: what is done in every second or third step is a part of it."""


@dataclass(frozen=True)
class Probe:
    """The calls of a step."""

    calls: tuple[Call, ...]
    keys: tuple[Hashable, ...]
    """What each call's function is known again by."""
    thread: int
    """Which makes them."""
    usual_size: range
    """The elements in the arguments of a step's first call, as many as may stand for all steps."""
    asking: int | None = None
    """Another thread, whose calls ask for what these ones train."""


def step_of(timer: Timer, prober: Prober) -> tuple[Span, Probe] | None:
    """The time of a step and its calls; None where no step was told.

    An evaluation after each tenth step is none of a step's calls; it is left aside, unless no step
    is told without it.
    """
    for asking in dict.fromkeys((asks_a_learner(prober), None)):
        timed = [call for call in timer.calls if call.thread != asking]
        for aside in (for_nobody(prober), frozenset[int]()):
            span = span_of(timed, timer.begin_ns, timer.end_ns, aside)
            probe = probe_of(prober, span.period, aside, asking) if span is not None else None
            if span is not None and probe is not None:
                return span, probe
    return None


def asks_a_learner(prober: Prober) -> int | None:
    """The thread whose calls take what another thread's calls return that change a state, as those
    of an actor or a server do, and that changes none itself. None if there is none; or several,
    which share a model.
    """
    updates = [call for call in prober.calls if is_update(prober, call.function.number)]
    training = {call.thread for call in updates}
    trained = {token.number for call in updates for token in call.outputs}
    asking = [
        calls[0].thread
        for calls in by_caller(prober.calls)
        if calls[0].thread not in training and takes_any(calls, trained)
    ]
    return asking[0] if len(asking) == 1 else None


def takes_any(calls: Iterable[Probed], numbers: Set[int]) -> bool:
    """Whether one of these objects is among the arguments of the calls."""
    return any(token.number in numbers for call in calls for token in call.inputs)


def for_nobody(prober: Prober) -> frozenset[int]:
    """The numbers of the functions that are called now and then, and no other call takes what they
    return, nor could take it after the program has fetched it.
    """
    calls = prober.calls
    often = Counter(call.function.number for call in calls)
    inputs = [token for call in calls for token in call.inputs]
    numbers = {token.number for token in inputs}
    contents = {token.contents for token in inputs if token.contents}
    useful = {
        call.function.number
        for call in calls
        if any(token.number in numbers or token.contents in contents for token in call.outputs)
    }
    seldom = SELDOM * max(often.values(), default=0)
    return frozenset(
        n
        for n, count in often.items()
        if count <= seldom and n not in useful and not is_update(prober, n)
    )


def is_update(prober: Prober, number: int) -> bool:
    """Whether a function returns several arrays like those that it takes, as one does that changes
    a state.
    """
    form = prober.forms[number]
    taken = Counter(zip(form.shapes, form.dtypes, strict=True))
    alike = taken & Counter(look for look in prober.results.get(number, ()) if look[0])
    return alike.total() > 1


def probe_of(
    prober: Prober,
    period: int | None = None,
    aside: Collection[int] = (),
    asking: int | None = None,
) -> Probe | None:
    """The roles of the arguments, from one step to the next; None where no step was told.

    `period`: the calls of a step, as they were told when the steps were timed; None: they were not.
    `aside`: the numbers of functions that are no part of a step; `asking`: the thread whose calls
    are none, if there is one.
    """
    ours = [
        call for call in prober.calls if call.function.number not in aside and call.thread != asking
    ]
    callers = by_caller(ours)
    if not callers:
        return None
    main: list[Probed] = sorted(callers[0], key=lambda each: each.begin_ns)
    anew = jitted_anew([call.function for call in main])
    gaps = [0.0] + [float(b.begin_ns - a.end_ns) for a, b in pairwise(main)]
    sequence = [key_of(call.function, anew) for call in main]
    period = period or period_of(sequence)
    if period is None or not repeats(sequence, period):
        return None
    starts = instances_of(sequence, gaps, period)
    if len(starts) < FEWEST_STEPS:
        return None
    slots = {start + slot: slot for start in starts for slot in range(period)}
    found = [
        call_of(prober, main, [start + slot for start in starts], slots) for slot in range(period)
    ]
    found = with_remade(found, [main[starts[-1] + slot] for slot in range(period)], prober)
    keys = tuple(sequence[starts[-1] + slot] for slot in range(period))
    size = usual_size([main[start].size for start in starts])
    return Probe(tuple(found), keys, main[0].thread, size, asking)


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
        leaf = leaf_of(form, index, role, source)
        is_anew = role == "constant" and leaf.kind == "device" and are_others(main, places, index)
        leaves.append(replace(leaf, remade=is_anew))
    fair = usual_gaps([(main[place - 1], main[place]) for place in places if place > 0])
    return Call(
        function=main[places[-1]].function.name,
        leaves=tuple(leaves),
        is_checked=main[places[-1]].function.number in prober.checked,
        before_ms=mean_ms([after.begin_ns - before.end_ns for before, after in fair]),
        before_cpu_ms=mean_ms([after.begin_cpu_ns - before.end_cpu_ns for before, after in fair]),
        inside_ms=mean_ms([main[place].end_ns - main[place].begin_ns for place in places]),
        inside_cpu_ms=mean_ms(without_outliers([main[place].inside_cpu_ns for place in places])),
    )


def are_others(main: Sequence[Probed], places: Sequence[int], index: int) -> bool:
    """Whether an argument is mostly another array than in the step before."""
    numbers = [main[place].inputs[index].number for place in places]
    return sum(a != b for a, b in pairwise(numbers)) > len(numbers) / 2


def sources_of(main: Sequence[Probed]) -> dict[int, tuple[int, int]]:
    """The place of the call that returned an object, and the object's place in its results; by the
    object's number.
    """
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
    """The role of an argument in one step, and where it comes from: the call of a step, and its
    result.

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
