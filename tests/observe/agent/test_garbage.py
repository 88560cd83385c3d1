import gc
import threading
from collections.abc import Iterator

import pytest

from perfdoctor.observe.agent.garbage import GarbageWatch
from perfdoctor.schema.recording import CollectionEvent


@pytest.fixture
def watch() -> Iterator[GarbageWatch]:
    """Installed, while the collector runs only when it is called."""
    gc.disable()
    found = GarbageWatch()
    found.install()
    yield found
    gc.callbacks.remove(found)
    gc.enable()


def last(watch: GarbageWatch) -> CollectionEvent:
    return watch.with_sources()[-1]


def test_a_collection_is_written_down_with_its_generation(watch: GarbageWatch) -> None:
    gc.collect(0)
    gc.collect(2)
    assert [event.generation for event in watch.events] == [0, 2]


def test_a_collection_ends_after_it_began(watch: GarbageWatch) -> None:
    gc.collect()
    assert 0 < last(watch).start_ns <= last(watch).end_ns


def test_a_collection_tells_the_line_that_it_began_in(watch: GarbageWatch) -> None:
    gc.collect()
    file, line, function = last(watch).frame
    assert file == __file__
    assert line > 0
    assert function == "test_a_collection_tells_the_line_that_it_began_in"
    assert last(watch).source == "gc.collect()"


def test_a_collection_tells_the_thread_that_ran_it(watch: GarbageWatch) -> None:
    gc.collect()
    other = threading.Thread(target=gc.collect)
    other.start()
    other.join()
    assert [each.thread for each in watch.events] == [threading.get_ident(), other.ident]


def test_a_collection_tells_how_much_it_freed(watch: GarbageWatch) -> None:
    gc.collect()
    cycles: list[list[object]] = [[] for _ in range(50)]
    for cycle in cycles:
        cycle.append(cycle)
    del cycle, cycles
    gc.collect()
    assert last(watch).collected >= 50


def test_a_collection_that_the_allocator_starts_is_seen(watch: GarbageWatch) -> None:
    thresholds = gc.get_threshold()
    gc.set_threshold(100, 1, 1)
    gc.enable()
    kept: list[list[int]] = []
    while not watch.events:
        kept.append([len(kept)])
    gc.disable()
    gc.set_threshold(*thresholds)
    assert last(watch).frame[0] == __file__
    assert "collect" not in last(watch).source


def test_the_watch_comes_before_other_callbacks() -> None:
    def other(phase: str, info: dict[str, int]) -> None: ...

    gc.callbacks.append(other)
    watch = GarbageWatch()
    watch.install()
    try:
        assert gc.callbacks.index(watch) < gc.callbacks.index(other)
    finally:
        gc.callbacks.remove(watch)
        gc.callbacks.remove(other)
