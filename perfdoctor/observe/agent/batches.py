"""What the steps after the captured one look up.

A replay that makes each step with the same batch finds the rows of its tables in the cache, where
the program looks up others in each step. So the integers of some more batches are saved, which may
be such rows.
"""

import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from msgspec.structs import replace

from perfdoctor.injection.calls import OWN_FILES, Function
from perfdoctor.observe.agent.form import dynamic
from perfdoctor.schema.capture import Capture, SavedLeaf

OWN_FILES.add(__file__)
MORE, MORE_S = 32, 0.5
"""Batches that are saved after the first one, and seconds for which they are waited for."""
MOST_BYTES = 2**26
"""What they may take together."""
FEWEST_ROWS = 256
"""Integers of a batch from which on it matters where they point to."""


class LaterBatches:
    """Makes files of the integers among the new arguments of a captured step, as they come."""

    def __init__(
        self,
        jax: Any,
        capture: Capture,
        is_same: Callable[[Function, int], bool],
        saved: Callable[[Any], str],
        room_bytes: int,
    ) -> None:
        """`is_same`: whether a call is that at this place of the step; `saved`: saves a value, and
        tells the name of its file; `room_bytes`: what is left for them.
        """
        self._jax, self._is_same, self._saved = jax, is_same, saved
        self._thread, self._begin_s = threading.get_ident(), time.monotonic()
        self._leaves = {
            (place, n): leaf
            for place, call in enumerate(capture.calls)
            for n, leaf in enumerate(call.leaves)
            if may_be_rows(jax, leaf)
        }
        self._left_bytes = min(MOST_BYTES, room_bytes)
        self._files: dict[tuple[int, int], list[str]] = {where: [] for where in self._leaves}

    def are_enough(self) -> bool:
        """Whether no more are needed, or they come too slowly."""
        if time.monotonic() - self._begin_s > MORE_S or self._left_bytes <= 0:
            return True
        return all(len(files) >= MORE for files in self._files.values())

    def look(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Save what a call takes, if it is one of the step's."""
        if threading.get_ident() != self._thread:
            return
        places = {place for place, _ in self._leaves if self._is_same(function, place)}
        if not places:
            return
        values = self._jax.tree_util.tree_leaves(dynamic(function, args, kwargs))
        for (place, n), leaf in self._leaves.items():
            if place in places and is_like(values[n], leaf):
                self._files[place, n].append(self._saved(values[n]))
                self._left_bytes -= int(values[n].nbytes)

    def added_to(self, capture: Capture) -> Capture:
        """The capture, with these files."""
        calls = tuple(
            replace(call, leaves=tuple(self._with_files(place, call.leaves)))
            for place, call in enumerate(capture.calls)
        )
        return replace(capture, calls=calls)

    def _with_files(self, place: int, leaves: tuple[SavedLeaf, ...]) -> Iterator[SavedLeaf]:
        for n, leaf in enumerate(leaves):
            yield replace(leaf, later=tuple(self._files.get((place, n), ())))


def may_be_rows(jax: Any, leaf: SavedLeaf) -> bool:
    """Whether an argument is an array of integers that is another one in each step."""
    if leaf.role != "new" or not leaf.file or leaf.key or math.prod(leaf.shape) < FEWEST_ROWS:
        return False
    return bool(jax.numpy.issubdtype(leaf.dtype, jax.numpy.integer))


def is_like(value: Any, leaf: SavedLeaf) -> bool:
    """Whether it can take the place of an argument that was saved."""
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    return shape == leaf.shape and str(dtype) == leaf.dtype
