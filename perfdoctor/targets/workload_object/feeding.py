"""The batches of a workload, as its loop takes them: as they come, or as a change has them."""

import itertools
import queue
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import jax

from perfdoctor.schema.fix import Scalar
from perfdoctor.targets.workload_object.finding import Given, Refused, a
from perfdoctor.targets.workload_object.results import alike, examples_of, is_array, marks_of

AHEAD = 2
"""Batches that lie ready on the device."""
COMPARED = 2
"""Batches after the first, by which it is told what is the same in each."""
LAST_BATCH_S = 10.0
"""Seconds for which the batch is waited for that the thread is at when it is to end."""
POLL_S = 0.1
"""Seconds between two looks at whether the thread is to end."""


def batches_of(given: Given, step: Mapping[str, Scalar], size: int | None) -> Iterator[Any]:
    """Endless batches. `step`: the change of the loop; `size`: another size of batches."""
    feed = epochs(given, size)
    if step.get("resident") == "state":
        feed = with_constants_put(feed)
    if step.get("loading") == "nowhere":
        return itertools.repeat(next(feed))
    if step.get("loading") == "thread":
        return Ahead(feed)
    return feed


def epochs(given: Given, size: int | None) -> Iterator[Any]:
    """One epoch after the other: when a workload has no batches left, it is asked for new ones."""
    while True:
        count, given_out = 0, given.batches() if size is None else given.batches(batch_size=size)
        for batch in iterator_of(given_out, given.name):
            if size is not None and count == 0:
                check_size(batch, size, given.name)
            count += 1
            yield batch
        if not count:
            raise Refused(
                f"{given.name}: batches() ended at once; expected an iterator with at least one "
                "batch, a new one at each call"
            )


def iterator_of(batches: Any, name: str) -> Iterator[Any]:
    """Over what `batches()` returned."""
    try:
        return iter(batches)
    except TypeError:
        raise Refused(f"{name}: batches() gave {a(batches)}; expected an iterator") from None


def check_size(batch: Any, asked: int, name: str) -> None:
    """Refuse batches that are not as large as they were asked to be."""
    found = examples_of(batch)
    if found is not None and found != asked:
        raise Refused(f"{name}: batches(batch_size={asked}) gave batches of {found}")


def put(batch: Any) -> Any:
    """A batch whose arrays are on the device, or on their way there."""
    return jax.tree.map(lambda leaf: jax.device_put(leaf) if is_array(leaf) else leaf, batch)


def with_constants_put(feed: Iterator[Any]) -> Iterator[Any]:
    """Arrays of the host that are the same in each batch are put on the device once."""
    first = next(feed)
    leaves, marks = jax.tree.leaves(first), marks_of(first)
    yield first
    same = set(range(len(leaves)))
    for batch in itertools.islice(feed, COMPARED):
        same &= alike(marks, marks_of(batch))
        yield batch
    resident = {number: jax.device_put(leaves[number]) for number in same}
    for batch in feed:
        found, tree = jax.tree.flatten(batch)
        yield tree.unflatten([resident.get(number, leaf) for number, leaf in enumerate(found)])


class Ahead:
    """Batches that a thread prepares, and puts on the device, while the steps before are computed.

    What the user's code raises there, is raised where the batch is asked for.
    """

    def __init__(self, feed: Iterator[Any]) -> None:
        self._feed = feed
        self._ready: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue(AHEAD)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._prepare, name="prefetch", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        batch, error = self._ready.get()
        if error is not None:
            raise error
        return batch

    def close(self) -> None:
        """End the thread, once the batch is prepared that it is at: the interpreter may not end
        while it is in jax, which would abort the process.
        """
        self._ended.set()
        self._thread.join(LAST_BATCH_S)

    def _prepare(self) -> None:
        try:
            for batch in self._feed:
                self._hand_over(put(batch), None)
                if self._ended.is_set():
                    return
        except BaseException as error:
            self._hand_over(None, error)

    def _hand_over(self, batch: Any, error: BaseException | None) -> None:
        while not self._ended.is_set():
            with suppress(queue.Full):
                self._ready.put((batch, error), timeout=POLL_S)
                return
