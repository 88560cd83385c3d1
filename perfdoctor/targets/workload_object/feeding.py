"""The batches of a workload, as its loop takes them: as they come, or as a change has them."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import jax

from perfdoctor.ahead import Ahead
from perfdoctor.schema.fix import Scalar
from perfdoctor.targets.workload_object.finding import Given, Refused, a
from perfdoctor.targets.workload_object.results import alike, examples_of, is_array, marks_of

COMPARED = 2
"""Batches after the first, by which it is told what is the same in each."""


def batches_of(given: Given, step: Mapping[str, Scalar], size: int | None) -> Iterator[Any]:
    """Endless batches. `step`: the change of the loop; `size`: another size of batches."""
    feed = epochs(given, size)
    if step.get("resident") == "state":
        feed = with_constants_put(feed)
    if step.get("loading") == "nowhere":
        return itertools.repeat(next(feed))
    if step.get("loading") == "thread":
        return Ahead(map(put, feed))
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
