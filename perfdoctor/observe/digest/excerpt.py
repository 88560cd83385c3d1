"""Some consecutive steps of the traced window, for a picture of them.

The numbers of `Steps` are made of all steps that count. Those of the picture are chosen so that
what a reader looks for is among them.
"""

from collections.abc import Callable, Iterator

import numpy as np

from perfdoctor.answers import place
from perfdoctor.observe.digest.attribution import code_of
from perfdoctor.observe.digest.compiles import LAST_PHASE
from perfdoctor.observe.digest.intervals import Instants, Intervals
from perfdoctor.observe.digest.lanes import MOST_SPANS, lanes_of, since_ms
from perfdoctor.observe.digest.repetition import begins, callers_of, calls_made, weights_of
from perfdoctor.observe.digest.sample import outlying
from perfdoctor.observe.digest.timeline import Timeline
from perfdoctor.schema.figures import Excerpt, Mark
from perfdoctor.schema.recording import Recording
from perfdoctor.schema.steps import Steps

MOST_STEPS, FEWEST_STEPS = 20, 2
"""Fewer, where a step has so many calls that a lane could not hold all spans of twenty."""
MOST_MARKS = 100
"""Marks that are kept, the longest; outliers are all kept."""
LONG = 3
"""The factor of the usual length beyond which a stretch of steps is not shown: it would show hardly
anything but one outlier."""
WORTH_A_MARK = 0.01
"""The share of a usual step that a collection or a wait must take to be marked."""

Found = tuple[str, int, int, str]
"""A mark: its kind, begin and end in ns, and its text."""


def excerpt_of(seen: Timeline, steps: Steps, recording: Recording) -> Excerpt | None:
    """About twenty steps in a row; None where they can't be told apart."""
    if steps.function not in seen.dispatches:
        return None
    starts = starts_of(seen, steps.function, recording)
    if len(starts) < 2:
        return None
    usual_ns = float(np.median(np.diff(starts)))
    found = [
        *collections(recording, usual_ns),
        *compilations(recording),
        *outliers(starts),
    ]
    count = shown_steps(seen, starts)
    first = chosen(starts, found, count)
    borders = starts[first : first + count + 1]
    within = np.asarray([[borders[0], borders[-1]]], np.int64)
    found += waits(seen, steps, recording, usual_ns, within)
    inside = [each for each in found if each[1] < borders[-1] and each[2] > borders[0]]
    kept = sorted(inside, key=lambda each: (each[0] != "outlier", each[1] - each[2]))[:MOST_MARKS]
    return Excerpt(
        function=steps.function,
        first_step=first + 1,
        window_steps=len(starts) - 1,
        borders_ms=tuple(since_ms(int(each), borders[0]) for each in borders),
        lanes=lanes_of(seen, steps.function, recording, steps.count, within),
        marks=tuple(mark(each, within) for each in sorted(kept, key=lambda each: each[1])),
        marks_left_out=len(inside) - len(kept),
    )


def starts_of(seen: Timeline, function: str, recording: Recording) -> Instants:
    """When the steps of the window began; with several threads, the calls of any."""
    callers = callers_of(seen, function)
    if len(callers) == 1:
        return begins(seen, function, weights_of(seen, recording), calls_made(recording))
    return np.sort(np.concatenate([spans[:, 0] for spans in callers]))


def shown_steps(seen: Timeline, starts: Instants) -> int:
    """How many steps a picture holds: a call and what follows it are two spans."""
    calls = sum(map(len, seen.dispatches.values())) / (len(starts) - 1)
    fitting = max(FEWEST_STEPS, int(MOST_SPANS / (2 * max(calls, 1e-9))))
    return min(MOST_STEPS, fitting, len(starts) - 1)


def chosen(starts: Instants, found: list[Found], count: int) -> int:
    """The index of the first step to show: of the stretches that hold most kinds of events the one
    whose length is nearest to the usual; of these the first.
    """
    lengths = starts[count:] - starts[:-count]
    usual = float(np.median(lengths))
    kinds = np.zeros(len(lengths), int)
    for kind in {each[0] for each in found}:
        at = np.sort(np.asarray([each[1] for each in found if each[0] == kind], np.int64))
        before, behind = (np.searchsorted(at, side) for side in (starts[:-count], starts[count:]))
        kinds += behind > before
    kinds[lengths > LONG * usual] = 0
    return int(np.lexsort((np.abs(lengths - usual), -kinds))[0])


def collections(recording: Recording, usual_ns: float) -> Iterator[Found]:
    """Those of Python's garbage collector that take a good part of a step."""
    for each in recording.collections:
        if each.end_ns - each.start_ns >= WORTH_A_MARK * usual_ns:
            where = place(each.frame[0], each.frame[1])
            text = f"generation {each.generation}, at {where}"
            yield "collection", each.start_ns, each.end_ns, text


def compilations(recording: Recording) -> Iterator[Found]:
    """What XLA compiled, and how long that took."""
    for each in recording.compiles:
        if each.phase == LAST_PHASE:
            yield (
                "compilation",
                each.end_ns - round(each.seconds * 1e9),
                each.end_ns,
                each.function,
            )


def outliers(starts: Instants) -> Iterator[Found]:
    """The steps that took over three times as long as most."""
    for index in np.flatnonzero(outlying(np.diff(starts) / 1e6)):
        yield "outlier", int(starts[index]), int(starts[index + 1]), f"step {index + 1}"


def waits(
    seen: Timeline, steps: Steps, recording: Recording, usual_ns: float, within: Intervals
) -> Iterator[Found]:
    """When the main thread waited for a result, and in which line, where a sample tells."""
    at = place_at(recording, code_of(seen, steps.function, recording, steps.count).own_line)
    for begin, end in seen.waits.tolist():
        if end > within[0, 0] and begin < within[0, 1] and end - begin >= WORTH_A_MARK * usual_ns:
            yield "wait", begin, end, at(begin, end)


def place_at(
    recording: Recording, own_line: Callable[..., tuple[str, int, str] | None]
) -> Callable[[int, int], str]:
    """Tells the user's line in which the main thread was, by the first sample in a span."""
    instants = np.asarray([instant for instant, _ in recording.samples], np.int64)

    def at(begin_ns: int, end_ns: int) -> str:
        index = int(np.searchsorted(instants, begin_ns))
        if index == len(instants) or instants[index] > end_ns:
            return ""
        frame = own_line(recording.stacks[recording.samples[index][1]])
        return f"{frame[2]}(), {place(frame[0], frame[1])}" if frame else ""

    return at


def mark(found: Found, within: Intervals) -> Mark:
    """A mark as the Excerpt has it, cut at its edges."""
    kind, begin, end, text = found
    first, last = (int(edge) for edge in within[0])
    return Mark(
        kind=kind,  # type: ignore[arg-type]
        start_ms=since_ms(max(first, begin), first),
        end_ms=since_ms(min(last, end), first),
        text=text,
    )
