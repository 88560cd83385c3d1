"""tf.data: pipelines of Python's iterators.

STAND_IN_DECODE_MS makes the pipeline slow: so much CPU time goes into each element that it yields,
in its thread if it ends in `prefetch`, as if the files were costly to decode.
"""

import os
import queue
import random
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice, repeat
from types import SimpleNamespace
from typing import Any

import numpy as np

from .nest import map_structure
from .tensor import TensorShape, TensorSpec, plain, tensor

AUTOTUNE = -1
Make = Callable[[], Iterator[Any]]
DECODE_S = float(os.environ.get("STAND_IN_DECODE_MS", "0")) / 1e3
PACKED = zlib.compress(bytes(range(256)) * 1000)


class Dataset:
    """What can be iterated again and again, each time from the start."""

    def __init__(self, make: Make, wholes: Make | None = None, decoded: bool = False) -> None:
        self._make = make
        self._wholes = wholes
        """Of a data set that was unbatched: what it was before."""
        self._decoded = decoded
        """The time for decoding is already spent."""

    @staticmethod
    def from_generator(
        generator: Callable[[], Iterable[Any]],
        output_types: Any = None,
        output_shapes: Any = None,
        output_signature: Any = None,
    ) -> "Dataset":
        """What a function yields."""
        if output_types is None:
            return Dataset(lambda: iter(generator()))

        def typed() -> Iterator[Any]:
            for element in generator():
                yield {key: np.asarray(each, output_types[key]) for key, each in element.items()}

        return Dataset(typed)

    def __iter__(self) -> Iterator[Any]:
        return (map_structure(tensor, element) for element in self._served())

    def as_numpy_iterator(self) -> Iterator[Any]:
        """Elements as NumPy's arrays, strings as bytes."""
        return (map_structure(plain, element) for element in self._served())

    def _served(self) -> Iterator[Any]:
        return self._make() if self._decoded else decoded(self._make())

    @property
    def element_spec(self) -> Any:
        """Shapes with unknown lengths, and types."""
        first = next(self._make())
        return map_structure(
            lambda leaf: TensorSpec(TensorShape([None] * np.ndim(leaf)), np.asarray(leaf).dtype),
            first,
        )

    def map(self, function: Callable[..., Any], **options: Any) -> "Dataset":
        """A function of each."""
        return Dataset(lambda: (function(own(element)) for element in self._make()))

    def filter(self, predicate: Callable[[Any], Any]) -> "Dataset":
        """Those of which it holds."""
        return Dataset(lambda: (each for each in self._make() if predicate(each)))

    def apply(self, function: Callable[["Dataset"], "Dataset"]) -> "Dataset":
        """What a function makes of the data set."""
        return function(self)

    def reduce(self, initial: Any, function: Callable[[Any, Any], Any]) -> Any:
        """All in one."""
        state = initial
        for element in self._make():
            state = function(state, element)
        return tensor(state)

    def take(self, count: int) -> "Dataset":
        """The first ones."""
        return Dataset(lambda: islice(self._make(), count))

    def repeat(self, count: int | None = None) -> "Dataset":
        """Again and again."""

        def make() -> Iterator[Any]:
            times = repeat(None) if count is None else repeat(None, count)
            return chain.from_iterable(self._make() for _ in times)

        return Dataset(make)

    def cache(self) -> "Dataset":
        """Kept in memory once they were all seen."""
        kept: list[Any] = []

        def make() -> Iterator[Any]:
            if not kept:
                kept.extend(self._make())
            return iter(kept)

        return Dataset(make)

    def shuffle(self, buffer_size: int, seed: int | None = None, **options: Any) -> "Dataset":
        """In random order, out of a buffer."""
        generator = random.Random(seed)

        def make() -> Iterator[Any]:
            elements = self._make()
            buffer = list(islice(elements, int(buffer_size)))
            for element in elements:
                index = int(generator.random() * len(buffer))
                buffer[index], element = element, buffer[index]
                yield element
            generator.shuffle(buffer)
            yield from buffer

        return Dataset(make)

    def unbatch(self) -> "Dataset":
        """The rows of each."""

        def make() -> Iterator[Any]:
            for element in self._make():
                for row in range(rows_of(element)):
                    yield at(element, row)

        return Dataset(make, wholes=self._make)

    def batch(self, batch_size: int, drop_remainder: bool = False) -> "Dataset":
        """So many stacked; rows that were unbatched before are cut out in one piece."""
        if self._wholes is not None:
            wholes = self._wholes
            return Dataset(lambda: slices(wholes(), batch_size))
        return Dataset(lambda: map(stacked, groups(self._make(), batch_size, drop_remainder)))

    def padded_batch(
        self,
        batch_size: int,
        padded_shapes: Any = None,
        padding_values: Any = None,
        drop_remainder: bool = False,
    ) -> "Dataset":
        """So many stacked, with zeros at the end of those that are shorter."""

        def make() -> Iterator[Any]:
            for group in groups(self._make(), batch_size, drop_remainder):
                yield padded(group, padded_shapes)

        return Dataset(make)

    def prefetch(self, buffer_size: int) -> "Dataset":
        """Made ahead by a thread."""
        size = 2 if buffer_size == AUTOTUNE else buffer_size
        return Dataset(lambda: ahead(self._served, size), decoded=True)


def own(element: Any) -> Any:
    """A dictionary that the function may change."""
    return dict(element) if isinstance(element, dict) else element


def at(element: Any, index: Any) -> Any:
    """A row, or a slice, of each leaf."""
    return map_structure(lambda leaf: leaf[index], element)


def rows_of(element: Any) -> int:
    """The length of the first leaf."""
    return len(next(iter(element.values())) if isinstance(element, dict) else element)


def slices(elements: Iterator[Any], size: int) -> Iterator[Any]:
    """Whole pieces of the rows of each element."""
    for element in elements:
        for start in range(0, rows_of(element) - size + 1, size):
            yield at(element, slice(start, start + size))


def groups(elements: Iterator[Any], size: int, drop_remainder: bool) -> Iterator[list[Any]]:
    """Lists of so many."""
    while group := list(islice(elements, size)):
        if len(group) == size or not drop_remainder:
            yield group


def stacked(group: list[Any]) -> Any:
    """One batch."""
    return map_structure(lambda *leaves: np.stack(leaves), *group)


def padded(group: list[dict[str, Any]], shapes: dict[str, Any]) -> dict[str, Any]:
    """One batch of vectors and scalars."""
    batch = {}
    for key, shape in shapes.items():
        leaves = [np.asarray(element[key]) for element in group]
        dims = (shape,) if isinstance(shape, int) else tuple(shape)
        if not dims:
            batch[key] = np.stack(leaves)
            continue
        length = dims[0]
        if length in (None, -1):
            length = max(len(leaf) for leaf in leaves)
        batch[key] = np.zeros((len(leaves), length), leaves[0].dtype)
        for row, leaf in zip(batch[key], leaves, strict=True):
            row[: len(leaf)] = leaf
    return batch


def ahead(make: Make, size: int) -> Iterator[Any]:
    """Elements that a thread makes while others are used."""
    made: queue.Queue[tuple[str, Any]] = queue.Queue(size)
    stop = threading.Event()

    def put(kind: str, value: Any) -> None:
        while not stop.is_set():
            try:
                made.put((kind, value), timeout=0.1)
                break
            except queue.Full:
                continue

    def work() -> None:
        try:
            for element in make():
                put("element", element)
                if stop.is_set():
                    return
            put("end", None)
        except Exception as error:
            put("error", error)

    threading.Thread(target=work, daemon=True, name="prefetch").start()
    try:
        while True:
            kind, value = made.get()
            if kind == "error":
                raise value
            if kind == "end":
                return
            yield value
    finally:
        stop.set()


def decoded(elements: Iterator[Any]) -> Iterator[Any]:
    """Each after the time that decoding it takes."""
    for element in elements:
        until = time.thread_time() + DECODE_S
        while time.thread_time() < until:
            zlib.decompress(PACKED)
        yield element


def bucket_by_sequence_length(
    element_length_func: Callable[[Any], Any],
    bucket_boundaries: Any,
    bucket_batch_sizes: list[int],
    padded_shapes: Any,
    pad_to_bucket_boundary: bool,
    drop_remainder: bool,
) -> Callable[[Dataset], Dataset]:
    """Batches of elements of similar lengths."""
    assert pad_to_bucket_boundary, "this stand-in always does"

    def make(dataset: Dataset) -> Iterator[Any]:
        waiting: dict[int, list[Any]] = {}
        for element in dataset._make():
            bucket = int(np.searchsorted(bucket_boundaries, element_length_func(element), "right"))
            group = waiting.setdefault(bucket, [])
            group.append(element)
            if len(group) == bucket_batch_sizes[bucket]:
                yield full(waiting.pop(bucket), bucket)
        if not drop_remainder:
            yield from (full(group, bucket) for bucket, group in waiting.items())

    def full(group: list[Any], bucket: int) -> Any:
        length = int(bucket_boundaries[bucket]) - 1
        shapes = {key: [length] if shape == [None] else shape for key, shape in shapes_of}
        return padded(group, shapes)

    shapes_of = list(padded_shapes.items())
    return lambda dataset: Dataset(lambda: make(dataset))


experimental = SimpleNamespace(
    AUTOTUNE=AUTOTUNE, bucket_by_sequence_length=bucket_by_sequence_length
)
