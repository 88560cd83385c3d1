"""How far the truth differs from one measurement to the next, of the ward's faults.

python -m tests.clinic.truths FIRST SECOND COMMIT

FIRST and SECOND are two results of the ward's `truth.py`, measured by the same command at two
times; COMMIT is where they were kept. No gain can be known better than its truth: what a tool is
off by holds what that is off by as well.
"""

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from tests.saved import save

FAR = 0.05
"""A difference of 5 %: what gains are to be off by at most."""


def faults(file: str) -> dict[str, dict[str, Any]]:
    """Those with a truth, by their names."""
    cases = json.loads(Path(file).read_text())["cases"]
    return {
        name: case
        for name, case in cases.items()
        if case["kind"] == "fault" and case.get("speedup")
    }


def apart(one: float, other: float) -> float:
    """By how much the larger one exceeds the other: 0.05 is 5 %."""
    return math.exp(abs(math.log(one / other))) - 1


def told(what: str, differences: Sequence[float]) -> str:
    """The median of differences, and how many are far."""
    count, far = len(differences), sum(each > FAR for each in differences)
    return f"{what}: {median(differences):.1%} in the median, over {FAR:.0%} in {far} of {count}"


def main() -> None:
    """Read both, and save what they differ by."""
    first, second, commit = sys.argv[1:]
    one, other = faults(first), faults(second)
    both = [name for name in one if name in other]
    between = {name: apart(one[name]["speedup"], other[name]["speedup"]) for name in both}
    within = [apart(*each["ratios"][:2]) for each in other.values() if len(each["ratios"]) > 1]
    lines = [
        f"{name:20s} {one[name]['speedup']:9.2f} {other[name]['speedup']:9.2f} {between[name]:6.1%}"
        for name in both
    ]
    table = [
        f"{'case':20s} {'first':>9s} {'second':>9s} {'apart':>6s}",
        *lines,
        "",
        told("two measurements apart", list(between.values())),
        told("two rounds of the second apart", within),
    ]
    sys.argv[1:] = ["FIRST", "SECOND", commit]  # their folders are nobody's business
    save("truths", table, {"first": one, "second": other}, measured=commit)


if __name__ == "__main__":
    main()
