"""An append-only history of benchmarks in a folder: a file each, and what changed over them."""

import hashlib
import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median

import msgspec

from perfdoctor.bench.fingerprint import differences
from perfdoctor.files import read_saved, write_whole
from perfdoctor.schema.benchmark import BENCHMARK_SCHEMA, Benchmark, LevelChange, Trend
from perfdoctor.schema.errors import UsageError

PATTERN = "*.benchmark.json"
"""Files of a history, in its folder."""
FEWEST = 6
"""Results from which on changes are looked for: three before and three after."""
SEGMENT = 3
"""Results that a level must last: one that stands alone is an accident."""
PENALTY = 6.0
"""A change must explain PENALTY x log(n) of the scatter's variance: twice the Bayesian information
criterion of a shift of the mean and its place (Yao 1988), since results of a day are not quite
independent."""
TO_SIGMA = 1.4826 / math.sqrt(2)
"""From the median of absolute differences of neighbours to the standard deviation of each."""


def append(folder: Path, benchmark: Benchmark) -> Path:
    """Keep a result in a file of its own; no file is ever written twice."""
    content = msgspec.json.encode(benchmark)
    digest = hashlib.sha256(content).hexdigest()[:8]
    instant = benchmark.created.replace(":", "").replace("-", "")
    file = folder / f"{instant}-{digest}{PATTERN[1:]}"
    write_whole(file, content)
    return file


def results(folder: Path) -> list[Benchmark]:
    """All that are kept, the oldest first; a UsageError that names a file that is none."""
    found = [
        read_saved(file, Benchmark, BENCHMARK_SCHEMA, "benchmark")
        for file in sorted(folder.glob(PATTERN))
    ]
    return sorted(found, key=lambda each: each.created)


def comparable(kept: Sequence[Benchmark], newest: Benchmark) -> list[Benchmark]:
    """Those of the same target on the same machine."""
    return [
        each
        for each in kept
        if each.target == newest.target and not differences(each.fingerprint, newest.fingerprint)
    ]


def trend(kept: Sequence[Benchmark], metric: str) -> Trend | None:
    """How one metric changed; None if no result has it."""
    found = [
        (value.value, each.created, each.source.commit if each.source else None)
        for each in kept
        for value in each.metrics
        if value.name == metric and value.value > 0
    ]
    if not found:
        return None
    values, created, commits = zip(*found, strict=True)
    return Trend(
        metric=metric,
        values=values,
        created=created,
        commits=commits,
        changes=tuple(changes(values)),
    )


def changes(values: Sequence[float]) -> list[LevelChange]:
    """The places where the level of a series of positive numbers changed for good.

    Optimal segmentation of the logarithms into constant levels (PELT, Killick et al. 2012, as
    ruptures has it), at a penalty that follows from the scatter between neighbours.
    """
    if len(values) < FEWEST:
        return []
    try:
        import ruptures
    except ModuleNotFoundError:
        raise UsageError("--history needs ruptures: pip install 'perfdoctor[history]'") from None
    import numpy as np

    logs = np.log(np.asarray(values, float))
    sigma = max(TO_SIGMA * median(abs(step) for step in np.diff(logs)), 1e-9)
    scaled = (logs / sigma).reshape(-1, 1)
    search = ruptures.Pelt(model="l2", min_size=SEGMENT, jump=1).fit(scaled)
    ends = [0, *search.predict(pen=PENALTY * math.log(len(values)))]
    levels = [fmean(logs[begin:end]) for begin, end in pairwise(ends)]
    return [
        LevelChange(index=end, ratio=math.exp(after - before))
        for end, before, after in zip(ends[1:-1], levels, levels[1:], strict=False)
    ]
