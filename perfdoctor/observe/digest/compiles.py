"""Adds up the phases of each compilation."""

from perfdoctor.schema.recording import Recording
from perfdoctor.schema.run import Compile

LAST_PHASE = "backend_compile_duration"


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
