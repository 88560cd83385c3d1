import pytest
from msgspec import structs

from perfdoctor.observe.digest.garbage import garbage_of
from perfdoctor.schema.calls import StepCalls
from perfdoctor.schema.recording import CollectionEvent, Recording, Window
from perfdoctor.schema.run import Garbage

MS = 1_000_000


def event(
    start_ms: float,
    length_ms: float,
    *,
    generation: int = 2,
    line: int = 10,
    source: str = "x = []",
    collected: int = 0,
) -> CollectionEvent:
    return CollectionEvent(
        generation=generation,
        start_ns=round(start_ms * MS),
        end_ns=round((start_ms + length_ms) * MS),
        collected=collected,
        frame=("/home/me/train.py", line, "train"),
        source=source,
    )


def garbage(*events: CollectionEvent) -> Garbage:
    """Of a window from 100 ms to 3100 ms."""
    found = garbage_of(
        Recording(
            start_ns=0,
            window=Window(start_ns=100 * MS, end_ns=3100 * MS, cpu_s=1.0, steady=True),
            collections=list(events),
            live_objects=1000,
            frozen_objects=7,
            gc_thresholds=(700, 10, 10),
        )
    )
    assert found is not None
    return found


def test_no_garbage_without_a_window() -> None:
    assert garbage_of(Recording(start_ns=0, collections=[event(1, 1)])) is None


def test_of_a_run_that_ended_early_they_are_those_while_its_steps_were_timed() -> None:
    calls = StepCalls(calls=(), time_ms=10.0, steps=9, timed_ns=(100 * MS, 190 * MS))
    seen = [event(50, 5), event(120, 5), event(180, 20), event(195, 5)]
    found = garbage_of(Recording(start_ns=0, step_calls=calls, collections=seen))
    assert found is not None
    assert found.window_s == pytest.approx(0.09)
    (collections,) = found.collections
    assert collections.count == 2
    assert collections.total_ms == pytest.approx(25)
    not_told = structs.replace(calls, timed_ns=(0, 0))
    assert garbage_of(Recording(start_ns=0, step_calls=not_told, collections=seen)) is None


def test_the_state_of_the_collector_is_passed_on() -> None:
    found = garbage()
    assert (found.live_objects, found.frozen_objects) == (1000, 7)
    assert found.thresholds == (700, 10, 10)
    assert found.window_s == 3.0
    assert found.collections == ()


def test_collections_of_one_place_are_added_up() -> None:
    (found,) = garbage(event(200, 5, collected=3), event(300, 7, collected=4)).collections
    assert (found.count, found.collected) == (2, 7)
    assert found.total_ms == pytest.approx(12)
    assert found.longest_ms == pytest.approx(7)
    assert found.place == "/home/me/train.py:10"


def test_generations_and_lines_are_told_apart() -> None:
    found = garbage(event(200, 5), event(300, 1, generation=0), event(400, 3, line=11))
    assert [(c.generation, c.place[-2:]) for c in found.collections] == [
        (2, "10"),
        (2, "11"),
        (0, "10"),
    ]


def test_collections_outside_of_the_window_do_not_count() -> None:
    assert garbage(event(50, 5), event(3200, 5)).collections == ()


@pytest.mark.parametrize("source", ["gc.collect()", "collect(2)", "if full: gc.collect ()"])
def test_calls_of_the_collector_are_explicit(source: str) -> None:
    assert garbage(event(200, 5, source=source)).collections[0].explicit


@pytest.mark.parametrize("source", ["", "collection = [1]", "recollect(x)"])
def test_other_lines_are_not(source: str) -> None:
    assert not garbage(event(200, 5, source=source)).collections[0].explicit


def test_only_the_ten_costliest_places_are_kept() -> None:
    found = garbage(*(event(200, line, line=line) for line in range(1, 15)))
    assert [c.longest_ms for c in found.collections] == pytest.approx(list(range(14, 4, -1)))
