"""Large arrays of NumPy's that the program hands to functions of jax outside of its jitted calls.

Around such a call there is no wrapper: `jnp.asarray(table)[rows]`. But while jax copies the array,
it is an argument of one of jax's functions on the stack, where it can be seen.
"""

from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from perfdoctor.observe.agent.arrays import COMPARED_BYTES, is_host_array
from perfdoctor.observe.agent.frames import kind_of, own_frames
from perfdoctor.schema.run import Handed, Place

PIECES, PIECE_BYTES = 64, 64
"""Pieces of an array that are compared from call to call, and bytes of each."""
Line = tuple[CodeType, int]
"""A line of the program's own code."""


@dataclass
class Seen:
    """What was seen of the arrays that one line hands over."""

    array: tuple[tuple[int, ...], str, int]
    """Shape, type and bytes of the latest one."""
    pieces: tuple[bytes, ...] = ()
    samples: int = 0
    calls: int = 0
    """Those whose array was compared with the one of the call before."""
    unchanged: float = 0.0
    """The pieces that were the same, as a share of each array; over all of these calls."""


class HandedOver:
    """Collects what a thread hands over, from samples of its stack."""

    def __init__(self) -> None:
        self._seen: dict[Line, Seen] = {}
        self._latest: tuple[Line, int] | None = None
        """The line that handed one over at the sample before, and the frame it was seen in."""

    def look(self, frame: FrameType | None) -> None:
        """At a stack, by its innermost frame; no array is kept."""
        where = array = None
        while frame is not None and kind_of(frame.f_code.co_filename).is_jax:
            found = argument_of(frame)
            if found is not None:
                array, where = found, id(frame)
            frame = frame.f_back
        line = own_line(frame) if array is not None else None
        if line is None or where is None:
            self._latest = None
            return
        if self._latest != (line, where):  # else it is within the same call
            self._note_call(line, array)
        self._latest = line, where
        self._seen[line].samples += 1

    def _note_call(self, line: Line, array: Any) -> None:
        """The array of another call from that line."""
        look, pieces = (array.shape, str(array.dtype), array.nbytes), pieces_of(array)
        seen = self._seen.setdefault(line, Seen(look))
        if seen.pieces:
            same = sum(a == b for a, b in zip(pieces, seen.pieces, strict=False))
            seen.unchanged += same / PIECES if look == seen.array else 0.0
            seen.calls += 1
        seen.array, seen.pieces = look, pieces

    def found(self, samples: int) -> list[Handed]:
        """Those of which several calls were seen. `samples`: of the thread, in all."""
        return [
            Handed(
                place=Place(
                    function=code.co_qualname,
                    file=code.co_filename,
                    line=line,
                    share=seen.samples / samples,
                ),
                shape=seen.array[0],
                dtype=seen.array[1],
                bytes=seen.array[2],
                unchanged=seen.unchanged / seen.calls,
            )
            for (code, line), seen in self._seen.items()
            if seen.calls
        ]


def argument_of(frame: FrameType) -> Any:
    """A large array among a function's arguments; None if there is none."""
    code = frame.f_code
    known = frame.f_locals
    for name in code.co_varnames[: code.co_argcount]:
        value: Any = known.get(name)
        if is_host_array(value) and value.nbytes >= COMPARED_BYTES and value.flags.c_contiguous:
            return value
    return None


def own_line(frame: FrameType | None) -> Line | None:
    """The innermost line of the program's own code."""
    own = own_frames(frame).own
    return (own[-1].f_code, own[-1].f_lineno or 0) if own else None


def pieces_of(array: Any) -> tuple[bytes, ...]:
    """Some of the array's values, all over it; none of Python's objects."""
    import numpy

    if array.dtype.hasobject:
        return ()
    flat = array.reshape(-1).view(numpy.uint8)
    last = len(flat) - PIECE_BYTES
    starts = [last * number // (PIECES - 1) for number in range(PIECES)]
    return tuple(flat[start : start + PIECE_BYTES].tobytes() for start in starts)
