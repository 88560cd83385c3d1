"""Which calls begin a step: what repeats in a timeline."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping

import numpy as np

from perfdoctor.observe.digest.executable import module_name
from perfdoctor.observe.digest.intervals import Instants, Intervals, total_ms
from perfdoctor.observe.digest.timeline import Timeline
from perfdoctor.schema.recording import Recording

FEWEST_STEPS = 5
"""Steps that tell a mean, and where the time goes."""
FAIR_SHARE = 0.1
"""The share of the busiest thread's calls that a thread must make to be a caller too: others make
an evaluation now and then."""
LONGEST, MOST_FUNCTIONS, REGULAR = 16, 12, 0.85
"""Calls of one function in a step, at most; functions that are looked at, those that do most of the
work; and the share of steps in which they are called equally often, as an evaluation now and then
is no part of a step."""


def begins(
    timeline: Timeline, function: str, weights: Mapping[str, float], made: Mapping[str, int]
) -> Instants:
    """When the steps of a training thread began.

    By the program's own marks, if it sets any. Else by the most frequent call, or each second,
    third … call of a function, between which always the same is called: a step may be made of
    several jitted functions, of gradients that are accumulated, or of single operations.

    `made`: how many calls of a function a step makes, where that was seen. A trace tells functions
    apart by their names only: of two that have the same one, each call would look like a step.
    """
    if len(timeline.annotated) > FEWEST_STEPS:
        return timeline.annotated[:, 0]
    known = sorted(weights, key=lambda name: -weights[name])[:MOST_FUNCTIONS]
    calls = {name: timeline.dispatches[name][:, 0] for name in known}
    strided = [
        (len(calls[name]) // n, -n, name)
        for name in known
        for n in range(1, LONGEST + 1)
        if n % made.get(name, 1) == 0
    ]
    for count, stride, name in sorted(strided, reverse=True):
        starts = calls[name][::-stride]
        if count > FEWEST_STEPS and repeats(starts, -stride, calls, weights):
            return starts
    return calls[function][:: made.get(function, 1)]


def calls_made(recording: Recording) -> Counter[str]:
    """How many calls of each function a step makes, as they were probed before the window; empty
    where they were not, or several threads make them.
    """
    known = recording.step_calls
    return (
        Counter(call.function for call in known.calls)
        if known and known.threads == 1
        else Counter()
    )


def repeats(
    starts: Instants, stride: int, calls: Mapping[str, Instants], weights: Mapping[str, float]
) -> bool:
    """Whether nearly all that is called, by its weight, is called equally often in each step.

    Where the steps are made of each n-th call, but n + 1 would be right, n of n + 1 look regular.
    """
    regular, enough = 0.0, max(REGULAR, 1 - 1 / (2 * stride))
    for name, instants in calls.items():
        counts = np.diff(np.searchsorted(instants, starts))
        usual = np.median(counts)
        if usual >= 1 and (counts == usual).mean() >= enough:
            regular += weights[name]
    return regular >= REGULAR * sum(weights[name] for name in calls)


def weights_of(timeline: Timeline, recording: Recording) -> dict[str, float]:
    """How much each jitted function works in the window: the bytes that its program moves.

    Where XLA does not tell, the time of its dispatches; it is less sure, since the CPU backend
    blocks whatever is dispatched while it is behind.
    """
    moved: defaultdict[str, list[float]] = defaultdict(list)
    for each in recording.executables:  # one for each shape that a function was called with
        moved[each.name].append(each.bytes_accessed or 0.0)
    calls = timeline.dispatches
    known = {name: float(np.mean(moved.get(module_name(name), 0.0))) for name in calls}
    if any(known.values()):
        return {name: each * len(calls[name]) for name, each in known.items()}
    return {name: total_ms(spans) for name, spans in calls.items()}


def callers_of(timeline: Timeline, function: str) -> list[Intervals]:
    """The calls of a function by each thread that makes its part of them."""
    found = [calls[function] for calls in timeline.by_thread if function in calls]
    found = found or [timeline.dispatches[function]]
    most = max(len(calls) for calls in found)
    return [calls for calls in found if len(calls) >= FAIR_SHARE * most]


def step_function(weights: Mapping[str, float], probed: Collection[str] = ()) -> str | None:
    """The jitted function that does most of the work; None if nothing was called.

    `probed`: the functions of a step, if they are known. Others are jax's own, which are called
    between them; they may move more bytes, but the step is what the program has jitted.
    """
    working = [name for name in weights if name in probed and weights[name]]
    return max(working or weights, key=weights.__getitem__, default=None)
