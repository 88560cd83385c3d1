"""The steps of a run that ended before a window was traced."""

import pytest

from perfdoctor.answers import traced
from perfdoctor.observe.digest.from_calls import steps_from, told_by_calls
from perfdoctor.schema.calls import Call, Leaf, StepCalls
from perfdoctor.schema.errors import NothingMeasured
from perfdoctor.schema.recording import Recording
from perfdoctor.schema.steps import ENDED_EARLY, UNREAD
from tests.calls import call_of


def call(function: str, size_bytes: int, before_ms: float, before_cpu_ms: float) -> Call:
    leaf = Leaf(
        argument="p", role="state", kind="device", shape=(1,), dtype="float32", bytes=size_bytes
    )
    return call_of(
        leaf, function=function, before_ms=before_ms, before_cpu_ms=before_cpu_ms, inside_cpu_ms=0.5
    )


CALLS = (call("grad", 100, 4.0, 3.0), call("update", 50, 1.0, 1.0), call("grad", 100, 0.0, 0.0))


@pytest.mark.parametrize(("ready", "device_ms", "waits"), [(1.0, 6.0, 1.0), (0.0, 10.0, 0.0)])
def test_what_the_host_does_shows_where_it_does_not_run_ahead(
    ready: float, device_ms: float, waits: float
) -> None:
    calls = StepCalls(calls=CALLS, time_ms=10.0, steps=50, ready=ready, collecting_ms=1.0)
    found = steps_from(calls)
    assert not found.is_traced and found.why_untraced == ENDED_EARLY
    assert (found.function, found.count, found.calls) == ("grad", 50, {"grad": 2, "update": 1})
    assert (found.time_ms, found.device_busy_ms, found.waits) == (10.0, device_ms, waits)
    exposed_ms = found.exposed_gc_ms + found.exposed_other_ms
    assert found.device_busy_ms + exposed_ms == pytest.approx(found.time_ms)
    assert (found.wait_ms, found.gc_ms, found.dispatch_ms) == (1.0, 1.0, 1.5)


def test_a_trace_that_was_not_read_is_the_reason() -> None:
    calls = StepCalls(calls=CALLS, time_ms=10.0, steps=50)
    with pytest.raises(NothingMeasured, match="before its trace was read"):
        traced(steps_from(calls, UNREAD))


def test_no_more_is_exposed_than_a_step_takes() -> None:
    busy = StepCalls(calls=(call("grad", 1, 30.0, 30.0),), time_ms=10.0, steps=5, ready=1.0)
    found = steps_from(busy)
    assert (found.device_busy_ms, found.exposed_other_ms) == (0.0, 10.0)


def test_steps_of_several_threads_are_one_call_of_any() -> None:
    found = steps_from(StepCalls(calls=CALLS[:1], time_ms=2.0, steps=50, threads=4))
    assert (found.threads, found.call_ms) == (4, 8.0)


@pytest.mark.parametrize(
    ("dispatches", "compilations", "is_told"),
    [(False, 0.0, True), (False, 0.1, True), (False, 1.0, False), (True, 0.0, False)],
)
def test_calls_tell_a_run_whose_time_they_take(
    dispatches: bool, compilations: float, is_told: bool
) -> None:
    calls = StepCalls(calls=CALLS, time_ms=10.0, steps=50, compilations=compilations)
    recording = Recording(start_ns=0, step_calls=calls, dispatches=dispatches)
    assert told_by_calls(recording) == (calls if is_told else None)
    assert told_by_calls(Recording(start_ns=0)) is None
