"""Items that a thread prepares ahead."""

import itertools
import threading
import time
from collections.abc import Iterator

import pytest

from perfdoctor.ahead import AHEAD, Ahead


def test_items_come_in_their_order_and_end_as_the_iterator_does() -> None:
    with Ahead(iter(range(20))) as ahead:
        assert list(ahead) == list(range(20))
        assert next(ahead, "ended") == "ended"


def test_it_is_no_further_ahead_than_it_is_to_be() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for n in itertools.count():
            taken.append(n)
            yield n

    with Ahead(items()) as ahead:
        assert next(ahead) == 0
        until = time.monotonic() + 10
        while len(taken) < AHEAD + 2 and time.monotonic() < until:
            time.sleep(0.001)
        assert len(taken) == AHEAD + 2  # one was taken, and one waits for room


def test_what_the_iterator_raises_is_raised_where_the_item_is_asked_for() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise MemoryError("80 GiB")

    with Ahead(items()) as ahead:
        assert next(ahead) == 1
        for _ in range(2):  # whoever asks
            with pytest.raises(MemoryError, match="80 GiB"):
                next(ahead)


def test_no_thread_is_left_though_it_was_at_an_item() -> None:
    begun = threading.Event()

    def items() -> Iterator[int]:
        while True:
            begun.set()
            time.sleep(0.3)
            yield 1

    with Ahead(items()) as ahead:
        begun.wait(10)
        assert ahead._thread.is_alive()
    assert not ahead._thread.is_alive()
