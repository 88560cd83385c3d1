"""How long the step of a script takes when it is alone.

python -m tests.clinic.loops NAME

Makes a slice for each line on stdin, which says how many seconds it is to take, so that another
process can be measured in turn with it; answers `step_ms=…`, the mean of the slice.
"""

import sys
import time

from tests.clinic.loops import Run, names, prepared

WARM_UP = 3
"""Steps that are made before any is timed, and those by which it is first told how long one takes.
"""


def seconds(run: Run, n: int) -> float:
    """Of a step, the mean of n."""
    start = time.perf_counter()
    run(n)
    return (time.perf_counter() - start) / n


def main() -> None:
    """Of the script that is named."""
    if len(sys.argv) != 2 or sys.argv[1] not in names():
        sys.exit(f"python -m tests.clinic.loops NAME; NAME: {' '.join(names())}")
    run = prepared(sys.argv[1])
    run(WARM_UP)
    each = seconds(run, WARM_UP)
    for line in sys.stdin:
        each = seconds(run, max(1, round(float(line) / each)))
        print(f"step_ms={1000 * each:.4f}", flush=True)


if __name__ == "__main__":
    main()
