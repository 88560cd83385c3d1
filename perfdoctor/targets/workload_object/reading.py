"""Reads of results inside a step that need not wait: those of a trial only.

A step that reads its loss in Python waits for it. In a trial that is to wait more rarely, the
program's own reads get what the same read got when it was last made for good; a state that is
fetched stays on the device. So what is trained there is not what the program trains.
"""

import sys
import threading
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

READS: dict[str, Callable[..., Any]] = {
    "__float__": float,
    "__int__": int,
    "__complex__": complex,
    "__array__": np.asarray,
    "__format__": lambda value, form: format(value[()], form),
    "__str__": str,
    "item": np.ndarray.item,
    "tolist": np.ndarray.tolist,
}
"""Methods of an array that wait for it, and what they do with its value."""
LIBRARIES = ("jax", "numpy")
"""Whose own reads are made for good."""


class Reads:
    """The reads of one step after the other.

    `every`: the steps of which one reads for good; 0: only the first two do. `fetches`: whether
    arrays that are fetched as a whole are copied to the host.
    """

    def __init__(self, every: int, *, fetches: bool) -> None:
        self._every, self._fetches = every, fetches
        self._step, self._nth = 0, 0
        self._thread: int | None = None
        self._known: dict[int, Any] = {}
        install(self)

    def around(self, step: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        """The step, whose reads are ours."""

        def reading(state: Any, batch: Any) -> Any:
            self._step, self._nth = self._step + 1, 0
            self._thread = threading.get_ident()
            try:
                return step(state, batch)
            finally:
                self._thread = None

        return reading

    def are_here(self) -> bool:
        """Whether the user's own code reads, in a step; asked by what it calls."""
        if self._thread != threading.get_ident():
            return False
        caller = str(sys._getframe(2).f_globals.get("__name__", ""))
        return caller.partition(".")[0] not in LIBRARIES

    def value(self, array: Any) -> Any:
        """What the array held at the same place of an earlier step; for good now and then."""
        self._nth += 1
        known = self._known.get(self._nth)
        is_due = self._step <= 2 or (self._every > 0 and self._step % self._every == 0)
        if is_due or known is None or known.shape != array.shape or known.dtype != array.dtype:
            thread, self._thread = self._thread, None
            known = self._known[self._nth] = np.asarray(array)
            self._thread = thread
        return known

    def fetched(self, array: Any) -> Any:
        """An array that the program wants on the host."""
        return self.value(array) if self._fetches else array


def install(reads: Reads) -> None:
    """Have all reads of arrays ask it."""
    kind = type(jax.numpy.zeros(()))
    for name, convert in READS.items():
        setattr(kind, name, method(getattr(kind, name), convert, reads))
    kind.block_until_ready = unwaited(kind.block_until_ready, reads)
    jax.block_until_ready = unwaited(jax.block_until_ready, reads)
    jax.device_get = fetching_tree(jax.device_get, kind, reads)
    np.asarray = fetching(np.asarray, kind, reads)
    np.array = fetching(np.array, kind, reads)


def method(real: Any, convert: Callable[..., Any], reads: Reads) -> Any:
    """A method of arrays."""

    def read(array: Any, *arguments: Any, **named: Any) -> Any:
        if not reads.are_here():
            return real(array, *arguments, **named)
        return convert(reads.value(array), *arguments, **named)

    return read


def unwaited(real: Any, reads: Reads) -> Any:
    """block_until_ready, of an array or of a tree."""

    def wait(tree: Any) -> Any:
        return tree if reads.are_here() else real(tree)

    return wait


def fetching_tree(real: Any, kind: type, reads: Reads) -> Any:
    """jax.device_get."""

    def fetch(tree: Any) -> Any:
        if not reads.are_here():
            return real(tree)
        return jax.tree.map(lambda x: reads.fetched(x) if isinstance(x, kind) else x, tree)

    return fetch


def fetching(real: Any, kind: type, reads: Reads) -> Any:
    """np.asarray and np.array."""

    def fetch(value: Any, *arguments: Any, **named: Any) -> Any:
        if not isinstance(value, kind) or not reads.are_here():
            return real(value, *arguments, **named)
        fetched = reads.fetched(value)
        return fetched if fetched is value else real(fetched, *arguments, **named)

    return fetch
