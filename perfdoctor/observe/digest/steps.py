"""Finds the training steps in a timeline, and where their time went."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from perfdoctor.observe.digest.compiles import LAST_PHASE, compiled_in
from perfdoctor.observe.digest.executable import module_name
from perfdoctor.observe.digest.intervals import (
    NOTHING,
    Instants,
    Intervals,
    complement,
    contains,
    intersection,
    total_ms,
    union,
)
from perfdoctor.observe.digest.places import Activity, Code, waiting_library
from perfdoctor.observe.digest.timeline import Timeline, as_computed
from perfdoctor.observe.digest.untraced import Toll, toll_of
from perfdoctor.schema.calls import StepCalls
from perfdoctor.schema.recording import CompileEvent, Frame, Recording
from perfdoctor.schema.run import Place, Steps

FEWEST_STEPS = 5
FEWEST_WAITS = 4
"""Waits in the window from which on a standard error is taken from wait to wait."""
FAIR_SHARE = 0.1
"""A thread that makes fewer of the calls than this share of the busiest one's is no other caller:
an evaluation now and then."""
LITTLE = 0.25
"""Of a step: what compiling may take in one that counts even so."""
SEEN = 0.1
"""Of the window: where all steps that hold no compilation take less together, and the program does
not compile for ever, they are calls of a set-up."""
OP_BY_OP = 9
"""Dispatches a step from which on the step's function is one operation of many."""
LONGEST, MOST_FUNCTIONS, REGULAR = 16, 12, 0.85
"""A step holds at most so many calls of one of the functions that do most of the work, and these
are called equally often in nearly all steps; an evaluation now and then is no part of it."""
MOST = 40
"""Functions whose calls are kept."""
RUN_AHEAD = 32
"""Calls that jax's CPU client lets the host be ahead of what is computed."""
OUTLYING = 3
"""Times the median."""
BURST_MS = 40.0
"""Page faults that a trace brings about come in bursts: outliers up to 35 ms in scripts of
tests/clinic, whose evaluations take 90 and more. Shorter ones are the trace's."""
LONG_MS = 1.0
"""Where the host is in Python for longer, a sampler that wants the interpreter gets it; out of a
shorter time it seldom does, but in the dispatch that follows."""
BLOCKS = 10
"""Blocks of consecutive steps from which the standard error is taken."""


def steps_of(
    timeline: Timeline, recording: Recording, glance: Timeline | None = None
) -> Steps | None:
    """The steps of the traced window; None if no repeated dispatch was seen in it.

    `glance`: a short trace before it, by which times are told as they are without any trace.
    """
    window = recording.window
    weights = weights_of(timeline, recording)
    function = step_function(weights)
    if window is None or function is None:
        return None
    callers = callers_of(timeline, function)
    starts = np.sort(np.concatenate([spans[:, 0] for spans in callers]))
    if len(callers) == 1:
        starts = begins(timeline, function, weights)
    called = sum(map(len, timeline.dispatches.values())) / max(1, len(starts))
    may_be_ahead = len(callers) == 1 and not timeline.is_as_computed
    every = fair_sample(starts, timeline.waits if may_be_ahead else NOTHING, called)
    kept = without_compilation(every, recording.compiles)
    if len(kept) < fewest(recording, function):
        moved = as_computed(timeline, even_if_as_many=True)
        is_new = moved.is_as_computed and not timeline.is_as_computed
        return steps_of(moved, recording, glance) if is_new else None
    if len(kept) < len(every) and is_set_up(kept, recording):
        return None
    lengths_ms = (kept[:, 1] - kept[:, 0]) / 1e6
    count, included = len(kept), union(kept)
    window_steps = (window.end_ns - window.start_ns) / 1e6 / lengths_ms.mean()
    usual_ms = lengths_ms[~outlying(lengths_ms) | (lengths_ms < BURST_MS)].mean()
    usual_share = float(usual_ms * 1e6 / (every[:, 1] - every[:, 0]).mean())
    untraced_ms = untraced_step_ms(
        recording.step_calls, function, calls_in(timeline, included), count
    )
    told_share = untraced_ms / float(lengths_ms.mean()) if untraced_ms else None
    toll = toll_of(glance, timeline, function, usual_share, included, told_share)
    lengths_ms *= toll.share
    return Steps(
        function=function,
        count=count,
        left_out=len(every) - count,
        time_ms=float(lengths_ms.mean()),
        median_ms=float(np.median(lengths_ms)),
        p95_ms=float(np.quantile(lengths_ms, 0.95)),
        outliers=int(outlying(lengths_ms).sum()),
        outlier_share=float(lengths_ms[outlying(lengths_ms)].sum() / lengths_ms.sum()),
        standard_error_ms=toll.share * standard_error_ms(kept, timeline.waits),
        slowed=1 / toll.share,
        cpu_ms=float(toll.share * window.cpu_s * 1e3 / window_steps),
        dispatches=sum(calls_in(timeline, included).values()) / count,
        calls={name: n / count for name, n in calls_in(timeline, included).most_common(MOST)},
        work={name: weight / sum(weights.values()) for name, weight in weights.items() if weight},
        batch_size=None,
        samples_per_s=None,
        began_s=(window.start_ns - recording.start_ns) / 1e9,
        window_s=(window.end_ns - window.start_ns) / 1e9,
        threads=len(callers),
        call_ms=toll.share * call_ms(callers) if len(callers) > 1 else 0.0,
        waits=inside(timeline.waits, included) / count,
        waiting_steps=float(holds(kept, timeline.waits[:, 0]).mean()),
        uploads=inside(timeline.uploads, included) / count,
        upload_ms=toll.net_ms(intersection(timeline.copies, included)) / count,
        callbacks=inside(timeline.callbacks, included) / count,
        callback_ms=toll.net_ms(intersection(union(timeline.callbacks), included)) / count,
        operations=int(contains(included, timeline.operations).sum()) / count,
        copy_ms=toll.net_ms(intersection(timeline.device_copies, included)) / count,
        busy_shares=busy_shares(timeline, included, recording.devices),
        **parts(timeline, function, recording, toll, included, count),  # type: ignore[arg-type]
    )


def fewest(recording: Recording, function: str) -> int:
    """Steps that tell where the time goes: a few, if they were timed while nothing was traced."""
    known = recording.step_calls
    is_timed = known is not None and any(call.function == function for call in known.calls)
    return 2 if is_timed else FEWEST_STEPS


def untraced_step_ms(
    known: StepCalls | None, function: str, calls: Mapping[str, int], count: int
) -> float | None:
    """What a step took while nothing was traced, as the probe has timed it; None if it was none of
    these steps.
    """
    if known is None or known.threads > 1:
        return None
    in_its_step = sum(call.function == function for call in known.calls)
    in_ours = calls.get(function, 0) / count
    return known.time_ms * in_ours / in_its_step if in_its_step else None


def is_set_up(kept: Intervals, recording: Recording) -> bool:
    """Whether what was compiled, and what lay around it, was most of the window."""
    window = recording.window
    window_ms = (window.end_ns - window.start_ns) / 1e6 if window else 0.0
    if recording.never_rests or not compiled_in(recording):
        return False
    return total_ms(union(kept)) < SEEN * window_ms


def outlying(lengths_ms: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Which steps took far longer than most; bool[steps]."""
    far: npt.NDArray[np.bool_] = lengths_ms > OUTLYING * np.median(lengths_ms)
    return far


def begins(timeline: Timeline, function: str, weights: Mapping[str, float]) -> Instants:
    """When the steps of a training thread began.

    By the program's own marks, if it sets any. Else by the most frequent call, or each second,
    third … call of a function, between which always the same is called: a step may be made of
    several jitted functions, of gradients that are accumulated, or of single operations.
    """
    if len(timeline.annotated) > FEWEST_STEPS:
        return timeline.annotated[:, 0]
    known = sorted(weights, key=lambda name: -weights[name])[:MOST_FUNCTIONS]
    calls = {name: timeline.dispatches[name][:, 0] for name in known}
    strided = [(len(calls[name]) // n, -n, name) for name in known for n in range(1, LONGEST + 1)]
    for count, stride, name in sorted(strided, reverse=True):
        starts = calls[name][::-stride]
        if count > FEWEST_STEPS and repeats(starts, -stride, calls, weights):
            return starts
    return calls[function]


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


def call_ms(callers: Sequence[Intervals]) -> float:
    """The mean time from one call to the next of the same thread."""
    gaps = np.concatenate([np.diff(calls[:, 0]) for calls in callers])
    return float(gaps.mean()) / 1e6 if len(gaps) else 0.0


def inside(events: Intervals, included: Intervals) -> int:
    """How many events began in the steps that count."""
    return int(contains(included, events[:, 0]).sum())


def busy_shares(timeline: Timeline, included: Intervals, devices: int) -> tuple[float, ...]:
    """By device, the share of the steps' time in which it computed."""
    whole_ms = total_ms(included)
    shares = [total_ms(intersection(busy, included)) / whole_ms for busy in timeline.busy_by_device]
    return tuple(shares) + (0.0,) * (devices - len(shares)) if shares else ()


def step_function(weights: Mapping[str, float]) -> str | None:
    """The jitted function that does most of the work; None if nothing was called."""
    return max(weights, key=weights.__getitem__, default=None)


def without_compilation(every: Intervals, compiles: Sequence[CompileEvent]) -> Intervals:
    """The steps that nothing compiled in; where there are hardly any, those in which it took
    little: a program that runs operation by operation compiles in nearly all. What is only traced,
    and found compiled, leaves a step as it is.
    """
    compiled = [event.end_ns for event in compiles if event.phase == LAST_PHASE]
    ends = np.sort(np.asarray(compiled, np.int64))
    kept = every[~holds(every, ends)]
    if len(kept) >= FEWEST_STEPS:
        return kept
    spans = union([(each.end_ns - round(each.seconds * 1e9), each.end_ns) for each in compiles])
    took_ms = [total_ms(intersection(spans, step[None])) for step in every]
    return every[np.asarray(took_ms) < LITTLE * (every[:, 1] - every[:, 0]) / 1e6]


def holds(every: Intervals, instants: Instants) -> npt.NDArray[np.bool_]:
    """In which steps one of the sorted instants lies; bool[steps]."""
    begins, ends = (np.searchsorted(instants, every[:, side]) for side in (0, 1))
    found: npt.NDArray[np.bool_] = ends > begins
    return found


def fair_sample(starts: Instants, waits: Intervals, calls_a_step: float) -> Intervals:
    """Of the steps between consecutive dispatches those of which was computed what was dispatched.

    The host runs ahead of the device until it waits. Between two waits all is fair; the step that
    holds a wait belongs to those before it, whose work it waits for. Before the first wait and
    after the last one, the steps are fair if the host is as far ahead at the end as at the begin:
    so not the step that catches up with what was dispatched before the window, nor those that get
    ahead again, up to RUN_AHEAD calls.
    """
    every: Intervals = np.stack([starts[:-1], starts[1:]], axis=1)
    held = waits[waits[:, 0] < starts.max(initial=0)]  # of the last step, the end is not known
    if len(held) == 0:
        return every
    ahead = math.ceil(RUN_AHEAD / max(1.0, calls_a_step))
    first, last = held[0, 0], held[-1, 0]
    before = every[every[:, 1] <= first]
    between = every[(every[:, 0] >= first) & (every[:, 0] < last)]
    after = every[every[:, 0] >= last][ahead:]
    return np.concatenate([before if len(before) >= 2 * ahead else NOTHING, between, after])


def standard_error_ms(kept: Intervals, waits: Intervals) -> float:
    """Of the mean step time, from blocks of consecutive steps: neighbours are not independent.

    Blocks end where the host waited for the device, if it did, so that each holds what it began.
    """
    ends = np.searchsorted(kept[:, 1], waits[:, 1]) if len(waits) >= FEWEST_WAITS else np.arange(0)
    ends = np.unique(ends[(ends > 0) & (ends < len(kept))])
    if len(ends) < FEWEST_WAITS:
        ends = np.arange(1, len(kept))
    chosen = ends[np.linspace(0, len(ends) - 1, min(BLOCKS - 1, len(ends))).astype(int)]
    blocks = [block for block in np.split(kept, np.unique(chosen)) if len(block)]
    means = np.asarray([(block[:, 1] - block[:, 0]).mean() / 1e6 for block in blocks])
    weights = np.asarray([len(block) for block in blocks]) / len(kept)
    mean = float((weights * means).sum())
    return float(np.sqrt((weights**2 * (means - mean) ** 2).sum() * len(means) / (len(means) - 1)))


def calls_in(timeline: Timeline, included: Intervals) -> Counter[str]:
    """Calls of jitted functions in the steps that count."""
    return Counter(
        {
            name: int(contains(included, spans[:, 0]).sum())
            for name, spans in timeline.dispatches.items()
        }
    )


def parts(
    timeline: Timeline,
    function: str,
    recording: Recording,
    toll: Toll,
    included: Intervals,
    count: int,
) -> dict[str, object]:
    """The fields of `Steps` that divide the time of `count` steps, `included` in all."""
    gc = intersection(union([(c.start_ns, c.end_ns) for c in recording.collections]), included)
    wait = complement(gc, intersection(timeline.waits, included))
    calls = union(np.concatenate(list(timeline.dispatches.values())))
    dispatch = complement(union(np.concatenate([gc, wait])), intersection(calls, included))
    host = complement(union(np.concatenate([gc, wait, dispatch])), included)
    busy = intersection(timeline.busy, included)
    idle = complement(busy, included)
    lasts_long = host[:, 1] - host[:, 0] > LONG_MS * 1e6

    instants = np.asarray([instant for instant, _ in recording.samples], np.int64)
    numbers = np.asarray([number for _, number in recording.samples], np.int64)
    code = code_of(timeline, function, recording, count)
    activities = np.asarray([code.activity(stack) for stack in recording.stacks], object)
    sampled_as = activities[numbers] if len(numbers) else np.zeros(0, object)

    def share(activity: Activity, where: Intervals) -> float:
        """Of the host's time in `where`, that in an activity: by the share of the samples, those of
        long stays in Python and those of short ones, of which each has fewer.
        """
        found_ms = 0.0
        for stays in (host[lasts_long], host[~lasts_long]):
            there = intersection(where, stays)
            seen = contains(there, instants)
            if seen.any():
                found_ms += float((sampled_as[seen] == activity).mean()) * total_ms(there)
        return found_ms / max(total_ms(where), 1e-9)

    def stacks_of(where: Intervals) -> list[list[Frame]]:
        return [recording.stacks[number] for number in numbers[contains(where, instants)]]

    def places(where: Intervals, activity: Activity | None = None) -> tuple[Place, ...]:
        chosen = contains(where, instants)
        if activity is not None:
            chosen &= sampled_as == activity
        return code.places([recording.stacks[number] for number in numbers[chosen]], sampled)

    exposed_host = intersection(host, idle)
    exposed_host_ms = toll.net_ms(exposed_host)
    exposed_etl_ms = exposed_host_ms * share("loading", exposed_host)
    exposed_logging_ms = exposed_host_ms * share("logging", exposed_host)
    sampled = max(1, int(contains(included, instants).sum()))
    busy_ms = toll.net_ms(busy) / count
    return {
        "device_busy_ms": busy_ms,
        "work_ms": {name: busy_ms * part for name, part in work_shares(timeline).items()},
        "exposed_etl_ms": exposed_etl_ms / count,
        "exposed_dispatch_ms": toll.net_ms(intersection(dispatch, idle)) / count,
        "exposed_wait_ms": toll.net_ms(intersection(wait, idle)) / count,
        "exposed_gc_ms": toll.net_ms(intersection(gc, idle)) / count,
        "exposed_logging_ms": exposed_logging_ms / count,
        "exposed_other_ms": (exposed_host_ms - exposed_etl_ms - exposed_logging_ms) / count,
        "etl_ms": toll.net_ms(host) * share("loading", host) / count,
        "dispatch_ms": toll.net_ms(dispatch) / count,
        "wait_ms": toll.net_ms(wait) / count,
        "gc_ms": toll.net_ms(gc) / count,
        "etl_places": places(host, "loading"),
        "wait_places": places(wait),
        "waits_in": waiting_library(stacks_of(wait)),
        "logging_places": places(host, "logging"),
        "other_places": places(host, "other"),
    }


def work_shares(timeline: Timeline) -> dict[str, float]:
    """By jitted function, its share of what all operations took; empty where that is not told."""
    whole_ms = sum(timeline.computed_ms.values())
    known = {name: timeline.computed_ms.get(module_name(name)) for name in timeline.dispatches}
    return {name: ms / whole_ms for name, ms in known.items() if ms}


def code_of(timeline: Timeline, function: str, recording: Recording, count: int) -> Code:
    """The user's code, and where in it the step is called: while it compiled, and sampled since."""
    own, calls = tuple(recording.own), timeline.dispatches[function]
    if sum(map(len, timeline.dispatches.values())) >= OP_BY_OP * count:
        return Code(own, seen=recording.stacks)  # the function is one operation of many
    instants = np.asarray([instant for instant, _ in recording.samples], np.int64)
    numbers = np.asarray([number for _, number in recording.samples], np.int64)
    during = np.unique(numbers[contains(calls, instants)])
    return Code(own, [*recording.calls.get(function, []), *(recording.stacks[n] for n in during)])
