"""Keeps what the ward's runner has found: causes that were named first, and how far off gains are.

python -m tests.clinic.ward RESULTS TRUTH COMMIT [NAME]

The ward's scripts, in styles that nobody here chose, and its runner `run_ward.py` lie outside of
this repository. RESULTS is the runner's result of one pass with the default command, TRUTH what
`truth.py` has measured, COMMIT the one that was examined, NAME that of what is saved. An interval
counts as one that holds the truth only if it is no wider than a factor of 3.
"""

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from tests.saved import save

WIDEST = 3.0


def line(row: dict[str, Any], truth: dict[str, Any]) -> str:
    """One case."""
    gain, interval = row["gain"], row.get("gain_interval") or (math.nan, math.nan)
    told = f"{gain:.2f} ({interval[0]:.2f} to {interval[1]:.2f}) {row['basis']}" if gain else "-"
    true = truth.get("speedup")
    said = f"rank {row['rank']}" if row["rank"] else "hint" if hinted(row) else "-"
    if row["kind"] != "fault":
        said = ""
    return (
        f"{row['case']:20s} {row['kind']:8s} {' or '.join(row['expect']):24s} {said:7s} {told:36s} "
        f"{f'{true:.2f}' if true else '-':>8s} {row['wall']:5.0f}  {', '.join(row['extra'])}"
    ).rstrip()


def hinted(row: dict[str, Any]) -> bool:
    """Whether the cause was told as a hint at least."""
    return bool(set(row["hints"]) & set(row["expect"]))


def summary(rows: Sequence[dict[str, Any]], truths: dict[str, Any]) -> list[str]:
    """Of all cases."""
    faults = [row for row in rows if row["kind"] == "fault"]
    others = [row for row in rows if row["kind"] != "fault"]
    first = sum(row["rank"] == 1 for row in faults)
    named = sum(row["rank"] is not None for row in faults)
    hints = sum(row["rank"] is None and hinted(row) for row in faults)
    clean = sum(not row["extra"] for row in others)
    silent = sum(
        "steps" in row and not row["steps"] and not row["extra"]  # the ward's rows tell no steps
        for row in others
    )
    scored = [
        (row, truths[row["case"]]["speedup"])
        for row in faults
        if row["gain"] and row["gain_scored"] and truths.get(row["case"], {}).get("speedup")
    ]
    off = [abs(math.log(row["gain"] / truth)) for row, truth in scored]
    held = [holds(row["gain_interval"], truth) for row, truth in scored]
    measured = [o for o, (row, _) in zip(off, scored, strict=True) if row["basis"] != "estimated"]
    walls = sorted(row["wall"] for row in rows)
    healthy = f"healthy scripts and decoys: no finding on {clean} of {len(others)}" + (
        f", {silent} of them without a verdict" if silent else ""
    )
    took = f"seconds: {median(walls):.0f} in the median, {walls[-1]:.0f} at most"
    if not faults:
        return [healthy, took]
    return [
        f"faults: the cause first in {first} of {len(faults)}, named in {named}, "
        f"a hint only in {hints}",
        healthy,
        f"other findings beside the cause: {sum(len(row['extra']) for row in faults)}",
        f"gains: off by {percent(off)} in the median of {len(off)}, "
        f"those measured by {percent(measured)} of {len(measured)}",
        f"the truth is in an interval no wider than a factor of {WIDEST:g} in {sum(held)} "
        f"of {len(held)}",
        took,
    ]


def holds(interval: Sequence[float], truth: float) -> bool:
    """Whether it holds the truth, and says something."""
    low, high = interval
    return low <= truth <= high <= WIDEST * low


def percent(logarithms: Sequence[float]) -> str:
    """Their median, as a share."""
    return f"{math.expm1(median(logarithms)):.0%}" if logarithms else "-"


def main() -> None:
    """Read both, and save a table."""
    results, truth, commit = sys.argv[1:4]
    name = sys.argv[4] if len(sys.argv) > 4 else "ward"
    rows = json.loads(Path(results).read_text())["rows"]
    truths = json.loads(Path(truth).read_text())["cases"]
    heading = (
        f"{'case':20s} {'kind':8s} {'expected':24s} {'said':7s} {'gain':36s} {'truth':>8s} "
        f"{'s':>5s}  other findings"
    )
    lines = [line(row, truths.get(row["case"], {})) for row in rows]
    sys.argv[1:4] = ["RESULTS", "TRUTH", commit]  # their folders are nobody's business
    table = [heading, *lines, "", *summary(rows, truths)]
    save(name, table, {"rows": rows, "commit": commit}, measured=commit)


if __name__ == "__main__":
    main()
