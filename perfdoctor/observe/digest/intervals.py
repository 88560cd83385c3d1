"""Sets of instants as arrays of disjoint, sorted intervals: int64[n, 2], nanoseconds."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

Intervals = npt.NDArray[np.int64]
Instants = npt.NDArray[np.int64]
NOTHING: Intervals = np.empty((0, 2), np.int64)
"""No interval at all."""


def union(pairs: Iterable[tuple[int, int]] | Intervals) -> Intervals:
    """The instants in any of the pairs, which may overlap and stand in any order."""
    raw = np.asarray(pairs if isinstance(pairs, np.ndarray) else list(pairs), np.int64)
    raw = raw.reshape(-1, 2)
    raw = raw[raw[:, 1] > raw[:, 0]]
    if not len(raw):
        return NOTHING
    raw = raw[np.argsort(raw[:, 0], kind="stable")]
    reach = np.maximum.accumulate(raw[:, 1])
    first = np.concatenate([[True], raw[1:, 0] > reach[:-1]])
    last = np.concatenate([first[1:], [True]])
    return np.stack([raw[first, 0], reach[last]], axis=1)


def complement(a: Intervals, within: Intervals) -> Intervals:
    """The instants of `within` that are not in `a`."""
    low, high = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    edges = np.concatenate([[low], a.ravel(), [high]])
    return intersection(edges.reshape(-1, 2), within)


def intersection(a: Intervals, b: Intervals) -> Intervals:
    """The instants in both."""
    if not len(a) or not len(b):
        return NOTHING
    first = np.searchsorted(b[:, 1], a[:, 0], side="right")
    behind = np.searchsorted(b[:, 0], a[:, 1], side="left")
    counts = np.maximum(behind - first, 0)
    which_a = np.repeat(np.arange(len(a)), counts)
    offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    which_b = np.repeat(first, counts) + offsets
    starts = np.maximum(a[which_a, 0], b[which_b, 0])
    ends = np.minimum(a[which_a, 1], b[which_b, 1])
    return union(np.stack([starts, ends], axis=1))


def total_ms(a: Intervals) -> float:
    """Their length together."""
    return float((a[:, 1] - a[:, 0]).sum()) / 1e6


def contains(a: Intervals, instants: Instants) -> npt.NDArray[np.bool_]:
    """Which of the instants lie in one of the intervals; bool[n]."""
    if not len(a):
        return np.zeros(len(instants), bool)
    index = np.searchsorted(a[:, 0], instants, side="right") - 1
    inside: npt.NDArray[np.bool_] = (index >= 0) & (instants < a[np.maximum(index, 0), 1])
    return inside
