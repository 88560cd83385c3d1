"""What a listener costs an iteration in which it does not print, beside a bare loop.

python -m tests.benchmarks.listener_cost [ROUNDS]

One process runs the same loops in slices: bare, with a listener in its two lines, and with one that
knows the number of examples by the batches. A score is given, as an array of jax that is computed.
In each round every loop has one slice, in random order; what it costs is told by the rounds'
differences to the bare one. The median of these is shown, with its interval of 95%.
"""

import itertools
import random
import sys
import time
from collections.abc import Callable, Iterable
from statistics import median
from typing import Any

import jax.numpy as jnp
import numpy as np

from perfdoctor import PerformanceListener
from tests.benchmarks.probe_cost import interval
from tests.saved import save

ITERATIONS = 5000
LIMIT_US = 2.0
BARE, LISTENED, SIZED = "bare", "two lines", "sized by its batches"
BATCH = {"image": np.zeros((128, 4)), "label": np.zeros(128)}


def bare(batches: Iterable[Any], score: Any) -> None:
    """A loop of nothing."""
    for _ in batches:
        pass


def listened(batches: Iterable[Any], score: Any, batch_size: int | None) -> None:
    """The same with a listener that prints in none of its iterations."""
    with PerformanceListener(batch_size=batch_size, every=10**9) as listener:
        for _ in listener.batches(batches):
            listener.step(score=score)


LOOPS: dict[str, Callable[[Iterable[Any], Any], None]] = {
    BARE: bare,
    LISTENED: lambda batches, score: listened(batches, score, 128),
    SIZED: lambda batches, score: listened(batches, score, None),
}


def slice_us(name: str, score: Any) -> float:
    """Microseconds an iteration."""
    batches = itertools.repeat(BATCH, ITERATIONS)
    begin_ns = time.perf_counter_ns()
    LOOPS[name](batches, score)
    return (time.perf_counter_ns() - begin_ns) / ITERATIONS / 1e3


def main() -> None:
    """All loops."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    score = jnp.float32(1.0).block_until_ready()
    slices: dict[str, list[float]] = {name: [] for name in LOOPS}
    for _ in range(rounds):
        for name in random.sample(list(LOOPS), len(LOOPS)):
            slices[name].append(slice_us(name, score))
    lines = [f"{'loop':24s} {'an iteration':>14s}   costs"]
    for name, found in slices.items():
        row = f"{name:24s} {median(found):>11.3f} us"
        if name != BARE:
            pairs = zip(found, slices[BARE], strict=True)
            low, middle, high = interval([each - plain for each, plain in pairs])
            verdict = "within" if high <= LIMIT_US else "BEYOND"
            row += f"   {middle:.2f} us ({low:.2f} to {high:.2f}), {verdict} {LIMIT_US:g} us"
        lines.append(row)
    lines += ["", f"{rounds} rounds of {ITERATIONS} iterations a slice"]
    save("listener_cost", lines, slices)


if __name__ == "__main__":
    main()
