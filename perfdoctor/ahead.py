"""A thread that prepares items ahead of who takes them."""

import queue
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Generic, Self, TypeVar

Item = TypeVar("Item")
AHEAD = 2
"""Items that lie ready."""
LAST_S = 10.0
"""Seconds for which the item is waited for that the thread is at when it is to end."""
POLL_S = 0.1
"""Seconds between two looks at whether the thread is to end."""


class Ahead(Generic[Item]):
    """What an iterator gives, taken from it by a thread; several threads may ask for it.

    What the iterator raises there, is raised where the item is asked for.
    """

    def __init__(self, items: Iterator[Item]) -> None:
        self._items = items
        self._ready: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue(AHEAD)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._prepare, name="prefetch", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[Item]:
        return self

    def __next__(self) -> Item:
        item, error = self._ready.get()
        if error is not None:
            self._hand_over(None, error)  # for whoever asks next
            raise error
        return item  # type: ignore[no-any-return]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *why: object) -> None:
        self.close()

    def close(self) -> None:
        """End the thread, once the item is prepared that it is at: the interpreter may not end
        while it is in jax, which would abort the process.
        """
        self._ended.set()
        with suppress(queue.Empty):  # it may wait for room
            self._ready.get_nowait()
        self._thread.join(LAST_S)

    def _prepare(self) -> None:
        try:
            for item in self._items:
                self._hand_over(item, None)
                if self._ended.is_set():
                    return
            self._hand_over(None, StopIteration())
        except BaseException as error:
            self._hand_over(None, error)

    def _hand_over(self, item: Item | None, error: BaseException | None) -> None:
        while not self._ended.is_set():
            with suppress(queue.Full):
                self._ready.put((item, error), timeout=POLL_S)
                return
