import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfdoctor.observe.digest.intervals import NOTHING, intersection, total_ms, union
from perfdoctor.observe.digest.lanes import (
    MOST_SPANS,
    NEAR_NS,
    around,
    beside,
    closed,
    lane,
    lanes_of,
    main_thread,
    sampled,
    work_of,
)
from perfdoctor.observe.digest.places import Code
from perfdoctor.schema.recording import SampledThread
from tests.observe.digest.test_steps import (
    LOADER,
    LOADING,
    MS,
    SAVING,
    TRAIN,
    every_step,
    recording,
    timeline,
)

WITHIN = union([(0, 200 * MS)])
LIBRARY = "/usr/lib/python3.11"


def seen(**more: object) -> object:
    """Steps of 10 ms: 1 ms of dispatch, 3 of waiting, the device busy for 4."""
    return timeline(every_step(0, 1), every_step(1, 5), every_step(2, 5), **more)


def test_each_moment_of_the_main_thread_counts_once() -> None:
    told = recording(LOADING, collections=[(8 * MS, 9 * MS)])
    parts = main_thread(seen(), told, Code(), WITHIN)  # type: ignore[arg-type]
    whole = union(np.concatenate(list(parts.values())))
    assert total_ms(whole) == pytest.approx(sum(map(total_ms, parts.values()))) == 200
    assert total_ms(parts["gc"]) == 1
    assert total_ms(parts["wait"]) == pytest.approx(60)
    assert total_ms(parts["dispatch"]) == pytest.approx(20)
    assert total_ms(parts["etl"]) > 100


def test_python_without_samples_is_other() -> None:
    found = sampled(WITHIN, [], [])
    assert list(found) == ["other"] and total_ms(found["other"]) == 200


@given(st.lists(st.tuples(st.integers(0, 199), st.booleans()), min_size=1, max_size=30))
def test_stays_are_divided_without_a_rest(samples: list[tuple[int, bool]]) -> None:
    told = [(at * MS, int(kind)) for at, kind in sorted(samples)]
    found = sampled(WITHIN, told, ["etl", "other"])
    assert sum(map(total_ms, found.values())) == pytest.approx(200)
    assert len(intersection(found.get("etl", NOTHING), found.get("other", NOTHING))) == 0


def test_what_a_sample_shows_reaches_half_way_to_the_next_and_not_too_far() -> None:
    cells = around(np.asarray([10 * MS, 14 * MS, 100 * MS]), NEAR_NS)
    assert cells.tolist() == [
        [0, 12 * MS],
        [12 * MS, 24 * MS],
        [90 * MS, 110 * MS],
    ]


def test_a_thread_that_waits_for_work_does_nothing() -> None:
    parked = [(f"{LIBRARY}/threading.py", 320, "Condition.wait"), LOADER]
    assert work_of(parked, Code()) is None
    assert work_of([], Code()) is None
    assert work_of([LOADER], Code()) == "etl"
    assert work_of(SAVING, Code()) == "logging"
    assert work_of([TRAIN], Code()) == "other"


def test_a_loader_thread_has_a_lane_while_it_works() -> None:
    parked = [(f"{LIBRARY}/queue.py", 180, "Queue.get")]
    works = [(at * MS, int(at >= 100)) for at in range(0, 200, 5)]
    thread = SampledThread(name="loader", stacks=[[LOADER], parked], samples=works)
    parts = beside(thread, Code(), WITHIN)
    assert total_ms(parts["etl"]) == pytest.approx(97.5)
    told = recording()
    told.others = [thread, SampledThread(name="idle", stacks=[parked], samples=[(0, 0)])]
    kinds = [(each.name, each.kind) for each in lanes_of(seen(), "step", told, 20, WITHIN)]  # type: ignore[arg-type]
    assert kinds == [("main thread", "main"), ("device", "device"), ("loader", "loader")]


def test_devices_callers_and_copies_have_lanes_of_their_own() -> None:
    calls = {"step": every_step(0, 1)}
    told = lanes_of(
        timeline(
            calls,
            every_step(1, 5),
            by_thread=(calls, calls, {"step": union([(900 * MS, 901 * MS)])}),
            busy_by_device=(every_step(1, 5), NOTHING),
            copies=every_step(6, 7),
        ),
        "step",
        recording(),
        20,
        WITHIN,
    )
    names = ["main thread", "device 0", "device 1", "caller 2", "copies to the device"]
    assert [each.name for each in told] == names
    assert {span.part for span in told[-1].spans} == {"copy"}


def test_gaps_that_nobody_could_see_are_closed() -> None:
    spans = union([(0, 10), (12, 20), (50, 60)])
    assert closed(spans, 5).tolist() == [[0, 20], [50, 60]]
    assert closed(spans, 1).tolist() == spans.tolist()
    assert len(closed(NOTHING, 5)) == 0


def test_a_lane_keeps_the_longest_spans_in_order_and_counts_the_others() -> None:
    many = union([(n * MS, n * MS + 1000 + n) for n in range(MOST_SPANS + 50)])
    found = lane("device", "device", {"device": many}, 0)
    assert (len(found.spans), found.left_out) == (MOST_SPANS, 50)
    assert found.spans[0].start_ms == 50.0
    assert list(found.spans) == sorted(found.spans, key=lambda each: each.start_ms)
