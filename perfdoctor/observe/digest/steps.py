"""Finds the training steps in a timeline, and where their time went."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from perfdoctor.observe.digest.attribution import parts
from perfdoctor.observe.digest.compiles import compiled_in
from perfdoctor.observe.digest.executable import module_name
from perfdoctor.observe.digest.intervals import (
    Intervals,
    contains,
    intersection,
    total_ms,
    union,
)
from perfdoctor.observe.digest.repetition import (
    FEWEST_STEPS,
    begins,
)
from perfdoctor.observe.digest.sample import (
    Sample,
    holds,
    outlying,
    sample_of,
    standard_error_ms,
)
from perfdoctor.observe.digest.timeline import Timeline, as_computed
from perfdoctor.observe.digest.untraced import TracingOverhead, overhead_of
from perfdoctor.schema.calls import StepCalls
from perfdoctor.schema.recording import Recording
from perfdoctor.schema.steps import Steps

Lengths = npt.NDArray[np.float64]
SEEN = 0.1
"""The share of the window that the steps which count must take together. Without a compilation in
them they are else calls of a set-up, unless the program compiles for ever; between waits they are
too few to stand for the others."""
MOST = 40
"""Functions whose calls are kept."""
BURST_MS = 40.0
"""Milliseconds up to which an outlier may come from the trace, which brings about bursts of page
faults: up to 35 ms in scripts of tests/clinic, whose evaluations take 90 and more."""


def steps_of(
    timeline: Timeline, recording: Recording, preview: Timeline | None = None
) -> Steps | None:
    """The steps of the traced window; None if no repeated dispatch was seen in it.

    `preview`: a short trace before it, by which times are told as they are without any trace.
    """
    sample = sample_of(timeline, recording) if recording.window is not None else None
    if sample is None:
        return None
    too_few = len(sample.kept) < fewest(recording, sample.function)
    if too_few or total_ms(sample.every) < SEEN * sample.seen_ms:
        told = told_by_what_ran(timeline, recording, preview)
        if too_few or told is not None:
            return told
    if len(sample.kept) < len(sample.every) and is_set_up(sample.kept, recording):
        return None
    return measured(sample, timeline, recording, preview)


def measured(
    sample: Sample, timeline: Timeline, recording: Recording, preview: Timeline | None
) -> Steps:
    """How long the steps took, and where their time went."""
    window, (function, weights, made, callers, every, kept, _) = recording.window, sample
    assert window is not None
    lengths_ms = (kept[:, 1] - kept[:, 0]) / 1e6
    count, included = len(kept), union(kept)
    window_steps = (window.end_ns - window.start_ns) / 1e6 / lengths_ms.mean()
    overhead = overhead_in(sample, timeline, recording, preview)
    lengths_ms *= overhead.share
    scattered_ms = as_they_were_computed(timeline, function, weights, made, lengths_ms)
    return Steps(
        function=function,
        count=count,
        left_out=len(every) - count,
        time_ms=float(lengths_ms.mean()),
        median_ms=float(np.median(scattered_ms)),
        p95_ms=float(np.quantile(scattered_ms, 0.95)),
        outliers=int(outlying(scattered_ms).sum()),
        outlier_share=float(scattered_ms[outlying(scattered_ms)].sum() / scattered_ms.sum()),
        standard_error_ms=overhead.share * standard_error_ms(kept, timeline.waits),
        slowed=1 / overhead.share,
        cpu_ms=float(overhead.share * window.cpu_s * 1e3 / window_steps),
        dispatches=sum(calls_in(timeline, included).values()) / count,
        calls={name: n / count for name, n in calls_in(timeline, included).most_common(MOST)},
        work={name: weight / sum(weights.values()) for name, weight in weights.items() if weight},
        batch_size=None,
        samples_per_s=None,
        began_s=(window.start_ns - recording.start_ns) / 1e9,
        window_s=(window.end_ns - window.start_ns) / 1e9,
        threads=len(callers),
        call_ms=overhead.share * call_ms(callers) if len(callers) > 1 else 0.0,
        waits=inside(timeline.waits, included) / count,
        waiting_steps=float(holds(kept, timeline.waits[:, 0]).mean()),
        uploads=inside(timeline.uploads, included) / count,
        upload_ms=overhead.net_ms(intersection(timeline.copies, included)) / count,
        long_upload_ms=overhead.net_ms(intersection(timeline.long_copies, included)) / count,
        handed=tuple(recording.handed),
        callbacks=inside(timeline.callbacks, included) / count,
        callback_ms=overhead.net_ms(intersection(union(timeline.callbacks), included)) / count,
        operations=int(contains(included, timeline.operations).sum()) / count,
        copy_ms=overhead.net_ms(intersection(timeline.device_copies, included)) / count,
        busy_shares=busy_shares(timeline, included, recording.devices),
        **parts(timeline, function, recording, overhead, included, count),  # type: ignore[arg-type]
    )


def overhead_in(
    sample: Sample, timeline: Timeline, recording: Recording, preview: Timeline | None
) -> TracingOverhead:
    """What the trace has added to these steps."""
    lengths_ms, included = (sample.kept[:, 1] - sample.kept[:, 0]) / 1e6, union(sample.kept)
    usual_ms = lengths_ms[~outlying(lengths_ms) | (lengths_ms < BURST_MS)].mean()
    usual_share = float(usual_ms * 1e6 / (sample.every[:, 1] - sample.every[:, 0]).mean())
    called = calls_in(timeline, included)
    untraced_ms = untraced_step_ms(recording.step_calls, sample.function, called, len(sample.kept))
    told_share = untraced_ms / float(lengths_ms.mean()) if untraced_ms else None
    return overhead_of(preview, timeline, sample.function, usual_share, included, told_share)


def told_by_what_ran(
    timeline: Timeline, recording: Recording, preview: Timeline | None
) -> Steps | None:
    """The steps by when they were computed, where too few of their calls tell how long they take;
    None if that is not told.
    """
    moved = as_computed(timeline, even_if_as_many=True)
    is_new = moved.is_as_computed and not timeline.is_as_computed
    return steps_of(moved, recording, preview) if is_new else None


def as_they_were_computed(
    timeline: Timeline,
    function: str,
    weights: Mapping[str, float],
    made: Mapping[str, int],
    called_ms: Lengths,
) -> Lengths:
    """How long steps took, of the same mean: a program that dispatches ahead makes its calls in
    bursts, and how they follow each other says nothing of how long they are computed.

    `called_ms`: from call to call. Where it is not told when a step was computed, the same.
    """
    moved = as_computed(timeline, even_if_as_many=True)
    if not moved.is_as_computed or module_name(function) not in timeline.run_begins:
        return called_ms
    computed_ms = np.diff(begins(moved, function, weights, made)) / 1e6
    if len(computed_ms) < FEWEST_STEPS:
        return called_ms
    found: Lengths = computed_ms * (called_ms.mean() / computed_ms.mean())
    return found


def fewest(recording: Recording, function: str) -> int:
    """Steps that tell where the time goes: a few, if they were timed while nothing was traced."""
    known = recording.step_calls
    is_timed = known is not None and known.calls_of(function) > 0
    return 2 if is_timed else FEWEST_STEPS


def untraced_step_ms(
    known: StepCalls | None, function: str, calls: Mapping[str, int], count: int
) -> float | None:
    """What a step took while nothing was traced, as the probe has timed it; None if it was none of
    these steps.
    """
    if known is None or known.threads > 1:
        return None
    in_its_step = known.calls_of(function)
    in_ours = calls.get(function, 0) / count
    return known.time_ms * in_ours / in_its_step if in_its_step else None


def is_set_up(kept: Intervals, recording: Recording) -> bool:
    """Whether what was compiled, and what lay around it, was most of the window."""
    window = recording.window
    window_ms = (window.end_ns - window.start_ns) / 1e6 if window else 0.0
    if recording.never_rests or not compiled_in(recording):
        return False
    return total_ms(union(kept)) < SEEN * window_ms


def call_ms(callers: Sequence[Intervals]) -> float:
    """The mean time from one call to the next of the same thread."""
    gaps = np.concatenate([np.diff(calls[:, 0]) for calls in callers])
    return float(gaps.mean()) / 1e6 if len(gaps) else 0.0


def inside(events: Intervals, included: Intervals) -> int:
    """How many events began in the steps that count."""
    return int(contains(included, events[:, 0]).sum())


def busy_shares(timeline: Timeline, included: Intervals, devices: int) -> tuple[float, ...]:
    """The share of the steps' time in which each device computed."""
    whole_ms = total_ms(included)
    shares = [total_ms(intersection(busy, included)) / whole_ms for busy in timeline.busy_by_device]
    return tuple(shares) + (0.0,) * (devices - len(shares)) if shares else ()


def calls_in(timeline: Timeline, included: Intervals) -> Counter[str]:
    """Calls of jitted functions in the steps that count."""
    return Counter(
        {
            name: int(contains(included, spans[:, 0]).sum())
            for name, spans in timeline.dispatches.items()
        }
    )
