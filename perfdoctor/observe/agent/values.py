"""Saves the arguments of a captured step, with their values where there is room for them."""

import itertools
import math
import shutil
from pathlib import Path
from typing import Any

import psutil
from msgspec.structs import replace

from perfdoctor.injection.calls import OWN_FILES
from perfdoctor.observe.agent.arrays import (
    as_array,
    axes_of,
    bounds_of,
    copied,
    lies_in_host_memory,
    offset_bytes,
    raw_bytes,
)
from perfdoctor.observe.agent.form import is_number
from perfdoctor.observe.agent.refusal import Unwanted
from perfdoctor.schema.calls import Leaf
from perfdoctor.schema.capture import SavedLeaf

OWN_FILES.add(__file__)
LIMIT_BYTES = 2**30
"""What all saved values may take together."""
BUFFER_BYTES = 2**24
"""What is written at once: for each system call, a program that holds the interpreter has us wait,
for 0.2 s where it collects garbage all the time."""
FREE_SHARE = 4
"""At most the n-th part of the memory and of the disk that are free."""


class SavedValues:
    """The arguments of one step, as they are saved call by call."""

    def __init__(self, jax: Any, folder: Path, prefix: str, limit_bytes: int) -> None:
        """`prefix`: of the files' names; `limit_bytes`: what all values may take together."""
        self.saved_bytes = 0
        self.made: list[str] = []
        """Arguments whose values were too large to be saved."""
        self.mesh: tuple[tuple[str, int], ...] = ()
        """Axes of the devices' mesh that arrays are spread over, with their lengths."""
        self._jax, self._folder, self._prefix = jax, folder, prefix
        self._limit_bytes = limit_bytes
        self._copies: list[tuple[str, Any]] = []
        self._numbers = itertools.count()

    def is_computed(self) -> bool:
        """Whether all that is to be written is computed."""
        return all(copy.is_ready() for _, copy in self._copies)

    def written(self) -> tuple[str, dict[str, tuple[int, int]]]:
        """Write what was copied into one file; waits until it is computed. The file's name, and
        where each of the values lies in it: the first byte, and how many there are.
        """
        all_values, parts, end = f"{self._prefix}values.raw", dict[str, tuple[int, int]](), 0
        if not self._copies:
            return "", parts
        with (self._folder / all_values).open("wb", buffering=BUFFER_BYTES) as file:
            for name, copy in self._copies:
                values = raw_bytes(copy)
                file.write(values)
                parts[name] = end, len(values)
                end += len(values)
        return all_values, parts

    def forget_copies(self) -> None:
        """Give their memory back."""
        self._copies = []

    def saved(self, value: Any, leaf: Leaf, aval: Any, place: int) -> SavedLeaf:
        """An argument of the call at this place of the step, with its values where they are needed
        and there is room for them. `aval`: as jax traces it.
        """
        is_put_back = leaf.remade and leaf.role == "constant"
        saved = SavedLeaf(
            role=leaf.role,
            kind="host" if is_put_back else leaf.kind,
            source=leaf.source,
            shape=(),
            dtype=type(value).__name__,
        )
        if is_number(value):
            if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
                return replace(saved, number=value)
            value = as_array(value, aval.dtype)  # a manifest can't hold it
        if leaf.kind == "key":
            saved = replace(saved, key=str(self._jax.random.key_impl(value)))
            value = self._jax.random.key_data(value)
        split = self._split(value)
        saved = replace(saved, shape=tuple(value.shape), dtype=str(value.dtype), split=split)
        if leaf.source is not None and leaf.source[0] < place:
            return saved  # what an earlier call of this very step returns
        saved = replace(saved, offset_bytes=offset_bytes(value), axes=axes_of(value))
        return self._with_values(saved, value, leaf.argument)

    def _with_values(self, saved: SavedLeaf, value: Any, argument: str) -> SavedLeaf:
        size = int(value.nbytes)
        if self.saved_bytes + size > self._limit_bytes:
            self.made.append(argument)
            low, high = bounds_of(value)
            return replace(saved, low=low, high=high)
        return replace(saved, file=self.file_of(value))

    def file_of(self, value: Any) -> str:
        """The name by which the values of an array are found, or will be when it is computed."""
        file = f"{self._prefix}{next(self._numbers)}.raw"
        if lies_in_host_memory(self._jax, value):
            self._copies.append((file, copied(self._jax, value)))
        else:  # the program may fill it anew, or need the device's memory for itself
            (self._folder / file).write_bytes(raw_bytes(value))
        self.saved_bytes += int(value.nbytes)
        return file

    def _split(self, value: Any) -> tuple[tuple[str, ...], ...] | None:
        """How an array lies on several devices; None on one."""
        sharding = getattr(value, "sharding", None)
        if sharding is None or len(sharding.device_set) < 2:
            return None
        mesh = getattr(sharding, "mesh", None)
        if mesh is None:
            raise Unwanted(f"its arrays are spread by {type(sharding).__name__}")
        axes = tuple((str(name), int(size)) for name, size in mesh.shape.items())
        if self.mesh not in ((), axes):
            raise Unwanted("its arrays are spread over different meshes")
        self.mesh = axes
        return tuple(
            () if each is None else (each,) if isinstance(each, str) else tuple(each)
            for each in sharding.spec
        )


def room_bytes(folder: Path) -> int:
    """The bytes that values may take, in memory and on the disk."""
    free = min(psutil.virtual_memory().available, shutil.disk_usage(folder).free)
    return int(min(LIMIT_BYTES, free / FREE_SHARE))
