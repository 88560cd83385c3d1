"""How long the step of a script takes when it is alone.

python -m tests.clinic.loops NAME [SECONDS]

Prints `step_ms=…`: the median of nine slices, which take SECONDS in all (2.7 if not told).
"""

import sys
import time
from statistics import median

from tests.clinic.loops import Run, names, prepared

SLICES, SECONDS, WARM_UP = 9, 2.7, 3


def seconds(run: Run, n: int) -> float:
    """Of a step, the mean of n."""
    start = time.perf_counter()
    run(n)
    return (time.perf_counter() - start) / n


def step_seconds(run: Run, total: float) -> float:
    """Of a step, the median of the slices."""
    run(WARM_UP)
    each = seconds(run, WARM_UP)
    each = seconds(run, max(1, round(total / SLICES / 5 / each)))
    n = max(1, round(total / SLICES / each))
    return median(seconds(run, n) for _ in range(SLICES))


def main() -> None:
    """Of the script that is named."""
    if len(sys.argv) not in (2, 3) or sys.argv[1] not in names():
        sys.exit(f"python -m tests.clinic.loops NAME [SECONDS]; NAME: {' '.join(names())}")
    run = prepared(sys.argv[1])
    total = float(sys.argv[2]) if len(sys.argv) == 3 else SECONDS
    print(f"step_ms={1000 * step_seconds(run, total):.4f}")


if __name__ == "__main__":
    main()
