from dataclasses import replace

import numpy as np
import pytest

from perfdoctor.observe.digest.intervals import NOTHING, union
from perfdoctor.observe.digest.timeline import Timeline, as_computed, without_tracing
from perfdoctor.observe.digest.xplane import (
    dispatches_of,
)
from tests.observe.digest.test_xplane import EVENTS


def test_calls_that_were_made_while_tracing_are_no_dispatches() -> None:
    calls = {"step": union([(0, 5), (20, 25)]), "helper": union([(11, 12)])}
    seen = Timeline(dispatches=calls, waits=NOTHING, busy=NOTHING, by_thread=(calls,))
    kept = without_tracing(seen, union([(10, 15)]))
    assert {name: spans.tolist() for name, spans in kept.dispatches.items()} == {
        "step": [[0, 5], [20, 25]]
    }
    assert list(kept.by_thread[0]) == ["step"]


def test_without_tracing_nothing_is_taken_away() -> None:
    calls = dispatches_of(EVENTS)
    seen = Timeline(dispatches=calls, waits=NOTHING, busy=NOTHING, by_thread=(calls,))
    assert list(without_tracing(seen, NOTHING).dispatches) == list(calls)


RUN_NS = 1000
"""What a run of the program takes."""


def ahead(called: int, computed: int, threads: int = 1, every_ns: int = 2) -> Timeline:
    """A window of so many calls, one after another, and of as many runs of their program."""
    begins = range(0, every_ns * called, every_ns)
    calls = {"step": union([(n, n + 1) for n in begins])} if called else {}
    return Timeline(
        dispatches=calls,
        waits=NOTHING,
        busy=NOTHING,
        by_thread=(calls,) * threads if called else (),
        annotated=union([(0, 1)]),
        run_begins={"jit_step": np.arange(computed) * RUN_NS},
    )


@pytest.mark.parametrize("called", [0, 32])
def test_calls_far_ahead_are_put_where_they_were_computed(called: int) -> None:
    found = as_computed(ahead(called, 8))
    assert found.is_as_computed and not len(found.annotated)
    assert list(found.dispatches["step"][:, 0]) == list(range(0, 8000, 1000))
    assert found.by_thread == (found.dispatches,)


@pytest.mark.parametrize(("called", "computed"), [(8, 8), (8, 6), (100, 81), (8, 0)])
def test_calls_that_were_computed_stay_where_they_are(called: int, computed: int) -> None:
    seen = ahead(called, computed, every_ns=RUN_NS)
    if not computed:
        seen = replace(seen, run_begins={})
    assert as_computed(seen) is seen


@pytest.mark.parametrize(("every_ns", "is_moved"), [(500, True), (740, True), (760, False)])
def test_a_burst_of_calls_is_put_where_it_was_computed(every_ns: int, is_moved: bool) -> None:
    seen = ahead(50, 48, every_ns=every_ns)
    found = as_computed(seen)
    assert found.is_as_computed is is_moved
    assert len(found.dispatches["step"]) == (48 if is_moved else 50)


def test_a_few_calls_are_no_burst() -> None:
    seen = ahead(3, 3)
    assert as_computed(seen) is seen


def test_of_several_threads_or_devices_calls_stay_where_they_are() -> None:
    threads = ahead(32, 8, threads=2)
    devices = replace(ahead(32, 8), busy_by_device=(NOTHING, NOTHING))
    assert as_computed(threads) is threads
    assert as_computed(devices) is devices
