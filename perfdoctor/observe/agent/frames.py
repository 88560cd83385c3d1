"""Tells the program's own functions on a stack from those of jax and other libraries."""

import inspect
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from types import FrameType
from typing import NamedTuple

from perfdoctor.injection.calls import OWN_FILES

DEEPEST = 60
"""Frames of a stack that are looked at."""
OPERATIONS = re.compile(
    r"/jax/_src/(?:lax|numpy|nn|scipy|ops|image|core|random|prng|interpreters/(?:ad|batching))\b"
)
"""Files of jax that dispatch operations; those that hand over arrays or read them are others."""
ARRAYS = re.compile(r"/jax/_src/(?:array|numpy/array_methods)\.py$")
"""The files of jax's arrays, by whose methods elements are taken out and values are read."""
DECORATING = inspect.CO_NESTED | inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
"""What the code of a decorator's inner function is: nested, and for any arguments."""
INDEXING = frozenset({"__getitem__", "__iter__"})
READING = frozenset(
    {"__int__", "__float__", "__bool__", "__index__", "_item", "tolist", "__array__"}
)
TRACING = re.compile(r"/jax/_src/(?:interpreters/(?:partial_eval|mlir)|compiler)\.py$")
"""Files of jax that trace and compile."""
OF_JAX = re.compile(r"/(?:site|dist)-packages/jax/")
"""Files of jax."""
LIBRARIES = re.compile(
    r"/site-packages/|/dist-packages/|/lib/python3|^<|/perfdoctor/(?:observe|injection|trials|targets)/"
)
"""Files that are no part of the program's own code."""


class Kind(NamedTuple):
    """What code a file holds."""

    is_own: bool
    """The program's own."""
    is_jax: bool
    operates: bool
    """Of jax, what dispatches operations."""
    traces: bool
    """Of jax, what traces and compiles."""
    is_arrays: bool
    """Of jax, its arrays' own methods."""


@cache
def kind_of(file: str) -> Kind:
    """Asked of each frame of a stack, which is to be looked at in a few microseconds."""
    return Kind(
        is_own=LIBRARIES.search(file) is None,
        is_jax=OF_JAX.search(file) is not None,
        operates=OPERATIONS.search(file) is not None,
        traces=TRACING.search(file) is not None,
        is_arrays=ARRAYS.search(file) is not None,
    )


@dataclass(frozen=True)
class Stack:
    """A stack at one moment."""

    own: Sequence[FrameType]
    """Of the program's own functions, the outermost first."""
    in_operation: bool
    is_tracing: bool
    takes_element: bool = False
    """Whether the innermost of them takes an element out of an array by its index."""
    reads_value: bool = False
    """Whether it makes a number of Python of one."""


def own_frames(frame: FrameType | None) -> Stack:
    """Of a stack, by its innermost frame."""
    found: list[FrameType] = []
    in_operation = is_tracing = takes_element = reads_value = False
    for _ in range(DEEPEST):
        if frame is None:
            break
        file = frame.f_code.co_filename
        kind = kind_of(file)
        if kind.is_own and file not in OWN_FILES:
            found.append(frame)
        elif not found:
            in_operation = in_operation or kind.operates
            if kind.is_arrays:
                takes_element = takes_element or frame.f_code.co_name in INDEXING
                reads_value = reads_value or frame.f_code.co_name in READING
        is_tracing = is_tracing or kind.traces
        frame = frame.f_back
    return Stack(found[::-1], in_operation, is_tracing, takes_element, reads_value)


def undecorated(own: Sequence[FrameType]) -> list[FrameType]:
    """Of a program's own frames, without those of decorators that just called one of its functions:
    the code of a decorator is the same around all of them.
    """
    inner = [*own[1:], None]
    return [
        frame
        for frame, called in zip(own, inner, strict=True)
        if called is None
        or called.f_back is not frame
        or frame.f_code.co_flags & DECORATING != DECORATING
    ]
