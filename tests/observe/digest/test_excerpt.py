import numpy as np
import pytest
from msgspec.structs import replace

from perfdoctor.observe.digest.excerpt import FEWEST_STEPS, MOST_STEPS, chosen, excerpt_of
from perfdoctor.observe.digest.steps import steps_of
from perfdoctor.observe.digest.timeline import Timeline
from perfdoctor.schema.figures import Excerpt
from perfdoctor.schema.recording import Recording
from perfdoctor.schema.steps import Steps
from tests.observe.digest.test_steps import LOADING, MS, every_step, recording, timeline

COUNT = 60


def steps(seen: Timeline, told: Recording) -> Steps:
    found = steps_of(seen, told)
    assert found is not None
    return found


def seen(count: int = COUNT) -> Timeline:
    return timeline(every_step(0, 1, count), every_step(1, 5, count), every_step(2, 5, count))


def excerpt(told: Recording, of: Timeline | None = None) -> Excerpt:
    shown = of or seen()
    found = excerpt_of(shown, steps(shown, told), told)
    assert found is not None
    return found


def test_twenty_steps_in_a_row_from_the_begin_of_the_first() -> None:
    found = excerpt(recording(LOADING))
    assert len(found.borders_ms) == MOST_STEPS + 1
    assert found.borders_ms[0] == 0.0
    assert np.diff(found.borders_ms) == pytest.approx(10.0)
    assert (found.function, found.window_steps) == ("step", COUNT - 1)
    assert all(0 <= s.start_ms <= s.end_ms <= 200 for lane in found.lanes for s in lane.spans)


def test_the_steps_that_are_shown_hold_what_a_reader_looks_for() -> None:
    told = recording(collections=[(413 * MS, 418 * MS)])
    found = excerpt(told)
    begin_ms = (found.first_step - 1) * 10
    assert begin_ms <= 413 < begin_ms + 200
    (mark,) = [each for each in found.marks if each.kind == "collection"]
    assert mark.start_ms == pytest.approx(413 - begin_ms)
    assert mark.text == "generation 2, at me/train.py:10"


def test_a_collection_that_takes_nothing_is_not_marked() -> None:
    found = excerpt(recording(collections=[(413 * MS, 413 * MS + 1000)]))
    assert [each for each in found.marks if each.kind == "collection"] == []


def test_compilations_are_marked_by_function() -> None:
    found = excerpt(recording(compiled_at_ms=(55,)))
    (mark,) = [each for each in found.marks if each.kind == "compilation"]
    assert mark.text == "step"
    assert mark.start_ms == 0.0 or mark.end_ms - mark.start_ms == pytest.approx(100)


def test_waits_are_marked_with_the_line_in_which_they_are() -> None:
    found = excerpt(recording())
    waits = [each for each in found.marks if each.kind == "wait"]
    assert len(waits) == MOST_STEPS
    assert {each.text for each in waits} == {"train(), me/train.py:10"}
    assert waits[0].end_ms - waits[0].start_ms == pytest.approx(3.0)


def late(count: int, after: int, by_ms: int) -> Timeline:
    """Steps of 10 ms, of which one takes longer."""
    calls = every_step(0, 1, count)
    calls[after + 1 :] += by_ms * MS
    return timeline(calls, calls + 4 * MS)


def test_an_outlier_is_marked_and_shown() -> None:
    told = recording()
    found = excerpt(told, late(COUNT, 40, 60))
    (mark,) = [each for each in found.marks if each.kind == "outlier"]
    assert mark.text == "step 41"
    assert mark.end_ms - mark.start_ms == pytest.approx(70.0)


def test_an_evaluation_of_seconds_does_not_crush_the_picture() -> None:
    found = excerpt(recording(), late(COUNT, 40, 5000))
    assert found.length_ms == pytest.approx(200.0)
    assert [each for each in found.marks if each.kind == "outlier"] == []


def test_of_stretches_alike_the_most_usual_is_shown() -> None:
    lengths = np.full(60, 10 * MS)
    lengths[:30] = 13 * MS
    starts = np.concatenate([[0], np.cumsum(lengths)])
    assert chosen(starts, [], MOST_STEPS) in range(
        11, 30
    )  # in which both kinds of steps are, half and half
    assert chosen(np.arange(5) * MS, [], 4) == 0


def test_steps_that_are_not_in_this_timeline_have_no_picture() -> None:
    told = recording()
    of_others = replace(steps(seen(), told), function="other")
    assert excerpt_of(seen(), of_others, told) is None


def test_where_a_step_is_very_many_calls_fewer_steps_are_shown() -> None:
    calls = np.concatenate([every_step(n / 100, n / 100 + 0.005, COUNT) for n in range(300)])
    several = {"step": every_step(0, 0.005, COUNT), "add": calls[np.argsort(calls[:, 0])]}
    marks = every_step(0, 9.9, COUNT)
    shown = timeline(several, every_step(1, 5, COUNT), annotated=marks)
    told = recording()
    found = excerpt_of(shown, replace(steps(seen(), told), function="step"), told)
    assert found is not None
    assert len(found.borders_ms) == FEWEST_STEPS + 1
