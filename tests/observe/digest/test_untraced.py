from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfdoctor.observe.digest import untraced
from perfdoctor.observe.digest.intervals import NOTHING, Instants, union
from perfdoctor.observe.digest.runs import Operation, Run, Runs
from perfdoctor.observe.digest.timeline import Timeline
from perfdoctor.observe.digest.untraced import (
    LEAST,
    TracingOverhead,
    events_that_lengthen,
    overhead_of,
)

MS = 1_000_000
WINDOW_NS = 2_000 * MS
"""When the window begins; its steps take 10 ms, and 1000 ms lie between it and the preview."""
STEPS = 100
INCLUDED = union([(WINDOW_NS, WINDOW_NS + STEPS * 10 * MS)])
DOT, ADD = Operation("jit_step", 7, "dot.3"), Operation("jit_step", 7, "add.1")
WIDER = Operation("jit_step", 8, "dot.3")


def runs(first: int, last: int, begin_ns: int, step_ms: float = 10.0, events: int = 1) -> Runs:
    """From one number to another, the first at an instant."""
    end_ns = begin_ns + round((last - first) * step_ms * MS)
    return Runs(Run(first, begin_ns), Run(last, end_ns), events)


def before(**runs_of: Runs) -> Timeline:
    """A preview, by operation."""
    return seen({OPERATIONS[name]: found for name, found in runs_of.items()})


OPERATIONS = {"dot": DOT, "add": ADD, "wider": WIDER}


def seen(by_operation: dict[Operation, Runs], **more: Any) -> Timeline:
    return Timeline(dispatches={}, waits=NOTHING, busy=INCLUDED, runs=by_operation, **more)


def window(runs_before: int = 200) -> Timeline:
    """Of a program that ran so often since the last run of the preview, which was its 50th."""
    first = 50 + runs_before
    operations = np.arange(WINDOW_NS, WINDOW_NS + STEPS * 10 * MS, MS)  # ten a step
    return seen({DOT: runs(first, first + STEPS - 1, WINDOW_NS)}, operations=operations)


PREVIEW = before(dot=Runs(Run(44, WINDOW_NS - 1_060 * MS), Run(50, WINDOW_NS - 1_000 * MS), 6))


@pytest.fixture(autouse=True)
def dear_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are few in these steps."""
    monkeypatch.setattr(untraced, "EVENT_MS", 1.0)


def overhead(preview: Timeline | None, seen: Timeline, usual_share: float = 1.0) -> TracingOverhead:
    return overhead_of(preview, seen, "step", usual_share, INCLUDED)


def test_runs_between_the_glance_and_the_window_tell_the_step_without_a_trace() -> None:
    found = overhead(PREVIEW, window(runs_before=200))  # in 1000 ms: 5 ms each, for 10 with a trace
    assert found.share == pytest.approx(0.5)
    assert found.event_ms == pytest.approx(5 / 20)  # ten operations a step, two events each
    assert found.net_ms(INCLUDED) == pytest.approx(STEPS * 5)


def test_what_the_events_can_t_explain_is_taken_from_all_parts_alike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(untraced, "EVENT_MS", 0.05)
    found = overhead(PREVIEW, window(runs_before=200))
    assert found.event_ms == 0.05
    assert found.rest_share == pytest.approx(5 / (10 - 20 * 0.05))
    assert found.net_ms(INCLUDED) == pytest.approx(STEPS * 5)
    silent = union([(WINDOW_NS + 1, WINDOW_NS + MS // 2)])
    assert found.net_ms(silent) == pytest.approx(0.5 * 5 / 9, abs=1e-3)


def test_a_program_that_is_not_slowed_down_pays_nothing() -> None:
    found = overhead(PREVIEW, window(runs_before=100))
    assert (found.share, found.event_ms) == (1.0, 0.0)
    assert found.net_ms(INCLUDED) == STEPS * 10


def test_an_evaluation_before_the_window_makes_no_step_shorter() -> None:
    assert overhead(PREVIEW, window(runs_before=30)).share == 1.0


def test_an_evaluation_within_the_window_is_no_toll() -> None:
    assert overhead(PREVIEW, window(runs_before=125)).share == pytest.approx(0.8)
    assert overhead(PREVIEW, window(runs_before=125), usual_share=0.8).share == 1.0


def test_what_ran_far_faster_before_was_something_else() -> None:
    assert overhead(PREVIEW, window(runs_before=round(110 / LEAST))).share == 1.0


@pytest.mark.parametrize(
    ("preview", "window"),
    [
        (None, window()),
        (before(), window()),
        (before(add=PREVIEW.runs[DOT]), window()),
        (PREVIEW, window(runs_before=4)),
        (PREVIEW, seen({DOT: runs(250, 253, WINDOW_NS)})),
        (PREVIEW, seen({})),
        (PREVIEW, seen({Operation("jit_other", 7, "dot.3"): runs(250, 349, WINDOW_NS)})),
    ],
)
def test_what_can_t_be_told_is_left_as_it_was_traced(
    preview: Timeline | None, window: Timeline
) -> None:
    assert overhead(preview, window).share == 1.0


def test_programs_that_did_not_run_in_the_glance_make_few_of_the_runs() -> None:
    mixed = {DOT: runs(250, 349, WINDOW_NS), WIDER: runs(10, 40, WINDOW_NS)}
    assert overhead(PREVIEW, seen(mixed)).share == 1.0
    hardly = {DOT: runs(250, 349, WINDOW_NS), WIDER: runs(10, 15, WINDOW_NS)}
    assert overhead(PREVIEW, seen(hardly)).share == pytest.approx(0.5)


def test_programs_for_several_shapes_are_taken_together() -> None:
    preview = before(dot=PREVIEW.runs[DOT], wider=runs(1, 10, WINDOW_NS - 1_060 * MS))
    window = {DOT: runs(250, 349, WINDOW_NS), WIDER: runs(310, 409, WINDOW_NS)}
    assert overhead(preview, seen(window)).share == pytest.approx(200 / (200 + 300 * 1000 / 970))


def test_the_runs_are_told_by_an_operation_that_occurs_once_in_each() -> None:
    begin_ns = WINDOW_NS - 1_000 * MS
    preview = before(
        dot=Runs(Run(44, begin_ns), Run(50, begin_ns), 60),
        add=Runs(Run(44, begin_ns - 60 * MS), Run(50, begin_ns), 6),
    )
    found = overhead(
        preview,
        seen(
            {
                DOT: runs(250, 349, WINDOW_NS - 9 * MS, events=1000),
                ADD: runs(250, 349, WINDOW_NS, events=100),
            }
        ),
    )
    assert found.share == pytest.approx(0.5)


def test_what_device_and_host_do_at_once_makes_a_step_longer_once() -> None:
    found = events_that_lengthen(
        Timeline(
            dispatches={},
            waits=NOTHING,
            busy=union([(0, 50), (200, 300)]),
            operations=np.asarray([10, 20, 210]),
            events=np.asarray([15, 60, 70, 220]),
        ),
        union([(0, 100)]),
    )
    assert found.tolist() == [10, 10, 20, 20, 60, 70]


@given(st.lists(st.integers(0, 999), max_size=30), st.floats(0, 0.5), st.integers(0, 1000))
def test_parts_make_the_whole_unless_one_is_nearly_all_events(
    instants: list[int], event_ms: float, cut: int
) -> None:
    events: Instants = np.sort(np.asarray(instants, np.int64)) * MS
    overhead = TracingOverhead(0.5, event_ms, 1.0, events)
    parts = [union([(0, cut * MS)]), union([(cut * MS, 1000 * MS)])]
    nets = [overhead.net_ms(each) for each in parts]
    assert all(0 <= net <= each for net, each in zip(nets, (cut, 1000 - cut), strict=True))
    if event_ms * len(events) <= (1 - LEAST) * min(cut, 1000 - cut):
        assert sum(nets) == pytest.approx(overhead.net_ms(union([(0, 1000 * MS)])))
