"""Adds up the phases of each compilation."""

from perfdoctor.observe.digest.intervals import Intervals, union
from perfdoctor.schema.calls import MOSTLY
from perfdoctor.schema.recording import Recording
from perfdoctor.schema.run import Compile

LAST_PHASE = "backend_compile_duration"
"""The last phase of a compilation, as jax.monitoring names it."""
TRACING_PHASE = "jaxpr_trace_duration"
"""The phase in which jax traces the Python function."""
USUAL = 3
"""Compilations of a function that a run may make without going on so."""


def tracing_of(recording: Recording) -> Intervals:
    """When functions were traced; instants as in the timeline."""
    return union(
        (event.end_ns - round(event.seconds * 1e9), event.end_ns)
        for event in recording.compiles
        if event.phase == TRACING_PHASE
    )


def compiles_of(recording: Recording) -> tuple[Compile, ...]:
    """The compilations in the order in which they ended."""
    found = []
    spent: dict[str, float] = {}
    for event in recording.compiles:
        seconds = spent.pop(event.function, 0.0) + event.seconds
        if event.phase != LAST_PHASE:
            spent[event.function] = seconds
            continue
        found.append(
            Compile(
                function=event.function,
                seconds=seconds,
                at_s=(event.end_ns - recording.start_ns) / 1e9,
                backend_s=event.seconds,
                reason=recording.reasons.get(event.function),
            )
        )
    return tuple(found)


def compiled_in(recording: Recording) -> bool:
    """Whether XLA compiled something in the window; what is only traced there, and found compiled,
    is what some operations do at each call.
    """
    window = recording.window
    ends_ns = [event.end_ns for event in recording.compiles if event.phase == LAST_PHASE]
    return window is not None and any(window.start_ns <= e <= window.end_ns for e in ends_ns)


def compiles_within(recording: Recording) -> bool:
    """Whether something was traced, lowered or compiled at any time of the window."""
    window = recording.window
    if window is None:
        return False
    return any(
        event.end_ns > window.start_ns and event.end_ns - event.seconds * 1e9 < window.end_ns
        for event in recording.compiles
    )


def may_compile_again(function: str, recording: Recording) -> bool:
    """Whether the steps that were timed mostly compiled a function again, too seldom yet to say
    that this goes on, and the next time may be near: since the last one less than twice the time
    has passed that lay between the last two.
    """
    calls, window = recording.step_calls, recording.window
    ends_ns = [
        event.end_ns
        for event in recording.compiles
        if event.phase == LAST_PHASE and event.function == function
    ]
    is_open = 2 <= len(ends_ns) <= USUAL
    if calls is None or window is None or not is_open:
        return False
    compiles = calls.compiling_ms >= MOSTLY * calls.time_ms
    return compiles and window.end_ns - ends_ns[-1] < 2 * (ends_ns[-1] - ends_ns[-2])
