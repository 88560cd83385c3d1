"""CPU time of the commands that are to answer at once: at most 0.2 s.

python -m tests.benchmarks.startup [RUNS]
"""

import os
import subprocess
import sys
from statistics import median

from tests.saved import save

INSTANT = (["--help"], ["list"], ["explain", "etl"])


def cpu_s(arguments: list[str]) -> float:
    """User and system time of one command."""
    before = os.times()
    subprocess.run(
        [sys.executable, "-m", "perfdoctor", *arguments], stdout=subprocess.DEVNULL, check=True
    )
    after = os.times()
    return (after.children_user - before.children_user) + (
        after.children_system - before.children_system
    )


def main() -> None:
    """Each of them, several times."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    lines, data = ["command                  median, highest"], {}
    for arguments in INSTANT:
        times = [cpu_s(arguments) for _ in range(count)]
        name = "perfdoctor " + " ".join(arguments)
        lines.append(f"{name:<24} {median(times):.2f} s, {max(times):.2f} s of CPU time")
        data[name] = times
    save("startup", lines, data)


if __name__ == "__main__":
    main()
