"""Fewer marks than there are data, so that what is longest or largest stays."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar


class Lasting(Protocol):
    """Has a begin and an end."""

    @property
    def start_ms(self) -> float:
        """The begin."""

    @property
    def end_ms(self) -> float:
        """The end."""


Each = TypeVar("Each", bound=Lasting)
Value = TypeVar("Value")


def longest_each(spans: Sequence[Each], begin_ms: float, end_ms: float, most: int) -> list[Each]:
    """All spans, if they are no more than `most`; else the time is cut into so many equal pieces,
    and of the spans that begin in a piece the longest stays: so the longest of all do too.
    """
    if len(spans) <= most:
        return list(spans)
    kept: list[Each | None] = [None] * most
    longest_ms = [-1.0] * most
    pieces_a_ms = most / max(end_ms - begin_ms, 1e-9)
    for span in spans:
        start_ms = span.start_ms
        length_ms = span.end_ms - start_ms
        piece = min(most - 1, max(0, int((start_ms - begin_ms) * pieces_a_ms)))
        if length_ms > longest_ms[piece]:
            longest_ms[piece], kept[piece] = length_ms, span
    return [span for span in kept if span is not None]


def evenly(values: Sequence[Value], most: int) -> list[Value]:
    """Every n-th, and the last one."""
    if len(values) <= most:
        return list(values)
    stride = -(-len(values) // (most - 1))
    return [*values[:-1:stride], values[-1]]


def extremes(values: Sequence[Value], most: int, height: Callable[[Value], float]) -> list[Value]:
    """All of a series, if it is no longer than `most`; else the lowest and the highest of each of
    `most` / 2 equal pieces, in their order.
    """
    if len(values) <= most:
        return list(values)
    size = -(-len(values) // (most // 2))
    kept: list[Value] = []
    for first in range(0, len(values), size):
        piece = values[first : first + size]
        ends = {min(range(len(piece)), key=lambda i: height(piece[i]))}
        ends.add(max(range(len(piece)), key=lambda i: height(piece[i])))
        kept += [piece[index] for index in sorted(ends)]
    return kept
