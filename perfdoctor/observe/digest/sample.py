"""Which steps of a window count, and how sure their mean is."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from perfdoctor.observe.digest.compiles import LAST_PHASE
from perfdoctor.observe.digest.intervals import (
    NOTHING,
    Instants,
    Intervals,
    intersection,
    total_ms,
    union,
)
from perfdoctor.observe.digest.repetition import (
    FEWEST_STEPS,
    begins,
    callers_of,
    calls_made,
    step_function,
    weights_of,
)
from perfdoctor.observe.digest.timeline import Timeline
from perfdoctor.schema.recording import CompileEvent, Recording

FEWEST_WAITS = 4
"""Waits in the window from which on a standard error is taken from wait to wait."""
LITTLE = 0.25
"""The share of a step that compiling may take in one that counts even so."""
RUN_AHEAD = 32
"""Calls that jax's CPU client lets the host be ahead of what is computed."""
OUTLYING = 3
"""The factor of the median beyond which a step is an outlier."""
BLOCKS = 10
"""Blocks of consecutive steps from which the standard error is taken."""


class Sample(NamedTuple):
    """Which steps of a window count."""

    function: str
    """The jitted function that does most of the work."""
    weights: Mapping[str, float]
    """By jitted function: how much it works."""
    made: Mapping[str, int]
    """By jitted function: its calls in a step, where that was seen."""
    callers: Sequence[Intervals]
    """The calls of each thread that makes them."""
    every: Intervals
    """The steps in which what was dispatched was also computed."""
    kept: Intervals
    """Those of them that nothing compiled in."""
    seen_ms: float
    """From the first call of a step to the last one."""


def sample_of(timeline: Timeline, recording: Recording) -> Sample | None:
    """The steps that count; None if no repeated dispatch was seen."""
    weights = weights_of(timeline, recording)
    function = step_function(weights, calls_made(recording))
    if function is None:
        return None
    callers, made = callers_of(timeline, function), calls_made(recording)
    starts = np.sort(np.concatenate([spans[:, 0] for spans in callers]))
    if len(callers) == 1:
        starts = begins(timeline, function, weights, made)
    seen_ms = float(starts[-1] - starts[0]) / 1e6 if len(starts) else 0.0
    called = sum(map(len, timeline.dispatches.values())) / max(1, len(starts))
    may_be_ahead = len(callers) == 1 and not timeline.is_as_computed
    every = fair_sample(starts, timeline.waits if may_be_ahead else NOTHING, called)
    kept = without_compilation(every, recording.compiles)
    return Sample(function, weights, made, callers, every, kept, seen_ms)


def outlying(lengths_ms: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Which steps took far longer than most; bool[steps]."""
    far: npt.NDArray[np.bool_] = lengths_ms > OUTLYING * np.median(lengths_ms)
    return far


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
    """Whether one of the sorted instants lies in each step. bool[steps]"""
    begins, ends = (np.searchsorted(instants, every[:, side]) for side in (0, 1))
    found: npt.NDArray[np.bool_] = ends > begins
    return found


def fair_sample(starts: Instants, waits: Intervals, calls_a_step: float) -> Intervals:
    """The steps between consecutive dispatches in which what was dispatched was also computed.

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
    """The standard error of the mean step time, from blocks of consecutive steps: neighbours are
    not independent. Blocks end where the host waited for the device, if it did, so that each holds
    what it began.
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
