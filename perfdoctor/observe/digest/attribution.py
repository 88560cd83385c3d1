"""Where the time of steps went: each moment to what the host did, and whether the device idled."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from perfdoctor.observe.digest.executable import module_name
from perfdoctor.observe.digest.intervals import (
    Intervals,
    complement,
    contains,
    intersection,
    total_ms,
    union,
)
from perfdoctor.observe.digest.places import Code, waiting_library
from perfdoctor.observe.digest.timeline import Timeline
from perfdoctor.observe.digest.untraced import TracingOverhead
from perfdoctor.schema.recording import Frame, Recording
from perfdoctor.schema.run import Place

OP_BY_OP = 9
"""Dispatches a step from which on the step's function is one operation of many."""
INNER = re.compile(r"(\.<locals>\.<\w+>)+$")
"""Comprehensions and lambdas, which wait for the function around them."""
Mask = npt.NDArray[np.bool_]
LONG_MS = 1.0
"""Where the host is in Python for longer, a sampler that wants the interpreter gets it; out of a
shorter time it seldom does, but in the dispatch that follows."""


class Samples:
    """The main thread's stacks as they were sampled, and what the host did in each.

    Masks are bool[stacks]: which of the recording's distinct stacks are meant.
    """

    def __init__(self, recording: Recording, code: Code) -> None:
        self.stacks, self._code = recording.stacks, code
        self._instants, self._numbers = instants_and_numbers(recording)
        self.activities = np.asarray([code.activity(stack) for stack in self.stacks], object)
        self.in_jax = np.asarray([code.is_in_jax(stack) for stack in self.stacks], bool)
        self.asleep = np.asarray([code.is_asleep(stack) for stack in self.stacks], bool)

    def share(self, which: Mask, where: Intervals, host: Intervals) -> float:
        """The part of the host's time in `where` that belongs to these stacks: by their share of
        all samples, for long stays in Python and for short ones, of which each has fewer, by
        themselves.
        """
        found_ms, lasts_long = 0.0, host[:, 1] - host[:, 0] > LONG_MS * 1e6
        for stays in (host[lasts_long], host[~lasts_long]):
            there = intersection(where, stays)
            seen = contains(there, self._instants)
            if seen.any():
                found_ms += float(which[self._numbers[seen]].mean()) * total_ms(there)
        return found_ms / max(total_ms(where), 1e-9)

    def within(self, where: Intervals, which: Mask | None = None) -> list[list[Frame]]:
        """The stack of each sample there."""
        numbers = self._numbers[contains(where, self._instants)]
        return [self.stacks[n] for n in numbers if which is None or which[n]]

    def places(
        self, where: Intervals, whole: Intervals, which: Mask | None = None
    ) -> tuple[Place, ...]:
        """Where in the user's code the main thread was; shares are of all samples in `whole`."""
        return self._code.places(self.within(where, which), max(1, len(self.within(whole))))


def parts(
    timeline: Timeline,
    function: str,
    recording: Recording,
    overhead: TracingOverhead,
    included: Intervals,
    count: int,
) -> dict[str, object]:
    """The fields of `Steps` that divide the time of `count` steps, `included` in all."""
    gc = intersection(union([(c.start_ns, c.end_ns) for c in recording.collections]), included)
    calls = union(np.concatenate(list(timeline.dispatches.values())))
    waits = union(np.concatenate([timeline.waits, copied_meanwhile(timeline, calls)]))
    wait = complement(gc, intersection(waits, included))
    dispatch = complement(union(np.concatenate([gc, wait])), intersection(calls, included))
    host = complement(union(np.concatenate([gc, wait, dispatch])), included)
    busy = intersection(timeline.busy, included)
    idle = complement(busy, included)
    exposed = intersection(host, idle)

    code = code_of(timeline, function, recording, count)
    samples = Samples(recording, code)
    loading, logging = (samples.activities == each for each in ("loading", "logging"))
    other = ~loading & ~logging
    operating, asleep = samples.in_jax & other, samples.asleep & other
    reading = reads(code, samples.stacks, samples.within(wait)) & ~loading

    def step_ms(where: Intervals, which: Mask | None = None) -> float:
        """Of a step; in Python, that of these stacks."""
        share = 1.0 if which is None else samples.share(which, where, host)
        return overhead.net_ms(where) * share / count

    busy_ms = step_ms(busy)
    exposed_etl_ms, exposed_logging_ms = step_ms(exposed, loading), step_ms(exposed, logging)
    return {
        "device_busy_ms": busy_ms,
        "work_ms": {name: busy_ms * part for name, part in work_shares(timeline).items()},
        "exposed_etl_ms": exposed_etl_ms,
        "exposed_dispatch_ms": step_ms(intersection(dispatch, idle)),
        "exposed_wait_ms": step_ms(intersection(wait, idle)),
        "exposed_gc_ms": step_ms(intersection(gc, idle)),
        "exposed_logging_ms": exposed_logging_ms,
        "exposed_other_ms": step_ms(exposed) - exposed_etl_ms - exposed_logging_ms,
        "exposed_operations_ms": step_ms(exposed, operating),
        "exposed_sleep_ms": step_ms(exposed, asleep),
        "etl_ms": step_ms(host, loading),
        "reading_ms": step_ms(host, reading),
        "dispatch_ms": step_ms(dispatch),
        "wait_ms": step_ms(wait),
        "gc_ms": step_ms(gc),
        "etl_places": samples.places(host, included, loading),
        "wait_places": samples.places(wait, included),
        "waits_in": waiting_library(samples.within(wait)),
        "logging_places": samples.places(host, included, logging),
        "other_places": samples.places(host, included, other),
        "sleep_places": samples.places(host, included, asleep),
    }


def copied_meanwhile(timeline: Timeline, calls: Intervals) -> Intervals:
    """When the main thread has to wait for what another one copies to the device, which idles: no
    event tells when it began to, and what it does meanwhile costs nothing.
    """
    return complement(calls, complement(timeline.busy, timeline.copies_beside))


def reads(
    code: Code, stacks: Sequence[Sequence[Frame]], waiting: Sequence[Sequence[Frame]]
) -> Mask:
    """Whether each stack is in a function of the user's that waits for results; of one that calls
    the step, which does other things too, in the very line that waits. bool[stacks]
    """
    own = [frame for stack in waiting if (frame := code.own_line(stack)) is not None]
    functions = {(file, INNER.sub("", name)) for file, _, name in own} - code.way.keys()
    calling = {(file, line) for (file, _), lines in code.way.items() for line in lines}
    waits_in = {(file, line) for file, line, _ in own} - calling
    found = [
        any((file, name) in functions or (file, line) in waits_in for file, line, name in stack)
        for stack in stacks
    ]
    return np.asarray(found, bool)


def work_shares(timeline: Timeline) -> dict[str, float]:
    """The share of each jitted function in what all operations took; empty if that is not told."""
    whole_ms = sum(timeline.computed_ms.values())
    known = {name: timeline.computed_ms.get(module_name(name)) for name in timeline.dispatches}
    return {name: ms / whole_ms for name, ms in known.items() if ms}


def instants_and_numbers(recording: Recording) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """When the stack was sampled, and which one it was. int64[samples] ns, int64[samples]"""
    instants = np.asarray([instant for instant, _ in recording.samples], np.int64)
    return instants, np.asarray([number for _, number in recording.samples], np.int64)


def code_of(timeline: Timeline, function: str, recording: Recording, count: int) -> Code:
    """The user's code, and where in it the step is called: as it was compiled and probed; sampled,
    if it was not.
    """
    own, calls = tuple(recording.own), timeline.dispatches[function]
    known, leading = recording.step_calls, recording.calls.get(function, [])
    handed = frozenset(
        (each.place.file, each.place.line) for each in recording.handed if each.is_no_new_data
    )
    code = Code(
        own,
        gets_batches=known is None or (known.carries_state and not known.is_asked),
        handed=handed,
    )
    if sum(map(len, timeline.dispatches.values())) >= OP_BY_OP * count:
        # the function may be one operation of many
        code = replace(code, seen=recording.stacks)
    if leading and known is not None and known.calls_of(function):
        return replace(code, calls=leading)  # they were seen, from where they are made
    if code.seen:
        return code
    instants, numbers = instants_and_numbers(recording)
    during = [recording.stacks[n] for n in numbers[contains(calls, instants)]]
    return replace(code, calls=[*leading, *often_seen(during, Code(own))])


def often_seen(stacks: Sequence[Sequence[Frame]], code: Code) -> list[Sequence[Frame]]:
    """Those whose lines of the user's code were seen more than half as often as those seen most: a
    single one may have been sampled as the call ended, in the line after it.
    """
    lines = [tuple(frame for frame in stack if code.is_own(frame[0])) for stack in stacks]
    counts = Counter(filter(None, lines))
    most = max(counts.values(), default=0)
    return [stack for stack, own in zip(stacks, lines, strict=True) if 2 * counts[own] > most]
