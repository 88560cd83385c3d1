"""Times the wait for each batch, of any iterator; all else of the loader is as without it."""

import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from perfdoctor.injection.calls import OWN_FILES

OWN_FILES.add(__file__)  # a stack through it looks as without it
OF_STATE = ("get_state", "set_state", "state_dict", "load_state_dict")
"""By which grain and torchdata save where they are: of what iterates, if it has them."""
Note = Callable[[int, Any], None]
"""Is told of a wait that just ended: when it began, by time.perf_counter_ns(), and the batch."""


class Around:
    """A loader, or its iterator: `loader` and `iterator` are the ones within."""

    def __init__(self, loader: Any, note: Note) -> None:
        self.loader = loader
        self.iterator: Any = None
        """The newest."""
        self._note = note

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # a protocol that the loader lacks too, or a copy of us is made
            raise AttributeError(name)
        inner = self.iterator if name in OF_STATE and hasattr(self.iterator, name) else self.loader
        if name in OF_STATE and not hasattr(inner, name) and hasattr(inner, "__iter__"):
            inner = self.iterator = iter(inner)  # where to begin is set before the first batch
        return getattr(inner, name)

    def __len__(self) -> int:
        return len(self.loader)

    def __getitem__(self, key: Any) -> Any:
        return self.loader[key]

    def __repr__(self) -> str:
        return f"batches({self.loader!r})"


class Batches(Around):
    """Iterates over a loader as often as that can be."""

    def __init__(self, loader: Any, note: Note) -> None:
        super().__init__(loader, note)
        self._is_begun = False

    def __iter__(self) -> Iterator[Any]:
        """A new pass; or the one whose state was just set."""
        if self.iterator is None or self._is_begun:
            self.iterator = iter(self.loader)
        self._is_begun = True
        return Pass(self.iterator, self._note)

    def __next__(self) -> Any:
        if not self._is_begun:
            self._next = iter(self)
        return next(self._next)


class Pass:
    """One pass over the batches."""

    __slots__ = ("_fetch", "_note", "iterator")

    def __init__(self, iterator: Any, note: Note) -> None:
        self.iterator = iterator
        self._fetch = iterator.__next__
        self._note = note

    def __iter__(self) -> "Pass":
        return self

    def __next__(self) -> Any:
        begin_ns = time.perf_counter_ns()
        batch = self._fetch()
        self._note(begin_ns, batch)
        return batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self.iterator, name)


class AsyncBatches(Around):
    """The same for `async for`."""

    def __aiter__(self) -> AsyncIterator[Any]:
        self.iterator = aiter(self.loader)
        return self

    async def __anext__(self) -> Any:
        if self.iterator is None:
            self.iterator = aiter(self.loader)
        begin_ns = time.perf_counter_ns()
        batch = await anext(self.iterator)
        self._note(begin_ns, batch)
        return batch


def length_of(batch: Any) -> int | None:
    """The examples of a batch: the first length that all its arrays share; None if it has none."""
    lengths = set(lengths_in(batch))
    return lengths.pop() if len(lengths) == 1 else None


def lengths_in(batch: Any, depth: int = 4) -> Iterator[int]:
    """Of the arrays in nested dicts, lists and tuples."""
    shape = getattr(batch, "shape", None)
    if shape is not None:
        if len(shape):
            yield int(shape[0])
    elif depth and isinstance(batch, dict):
        for each in batch.values():
            yield from lengths_in(each, depth - 1)
    elif depth and isinstance(batch, list | tuple):
        for each in batch:
            yield from lengths_in(each, depth - 1)
