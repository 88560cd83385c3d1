"""Examines scripts of the rounds again: what a round had missed, and all that are healthy.

python -m tests.clinic.again missed|healthy [ROUND …]

They are known by now: what is missed shows what to do next, and a healthy script with a finding,
what a change has broken. Each is examined by the default command, once; rows of earlier runs are
kept.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from perfdoctor.trials.statistics import FAITHFUL
from tests.clinic.fresh import FOLDER, KEPT_AS, by_commit, cases, examined, named
from tests.clinic.ward import line
from tests.saved import commit, save

RESULTS = Path(__file__).parent / "results"
LEFT_OUT = ("steps", "findings", "checks")
"""Parts of a report that are not kept."""


def chosen(kind: str, rounds: Sequence[str]) -> Iterator[tuple[dict[str, Any], dict[str, float]]]:
    """The cases, and what is known of their truths."""
    for which in rounds:
        saved = json.loads((RESULTS / f"{KEPT_AS[which]}.json").read_text())
        ranks = {row["case"]: row["rank"] for row in saved["rows"]}
        for case in cases(FOLDER / which):
            is_missed = bool(case["expect"]) and ranks[named(case)] != 1
            if is_missed if kind == "missed" else not case["expect"]:
                yield case, saved["truth"].get(named(case), {})


def row_of(row: dict[str, Any], truth: dict[str, float]) -> dict[str, Any]:
    """What is kept of an examination."""
    steps = row["steps"] or {}
    times = {name: steps.get(name) for name in ("untraced_ms", "alone_ms", "emulated_ms")}
    left = {name: value for name, value in row.items() if name not in LEFT_OUT}
    return left | {"truth": truth, "steps": times, "commit": commit()}


def lines_of(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The table, and what it amounts to."""
    faults = [row for row in rows if row["expect"]]
    healthy = [row for row in rows if not row["expect"]]
    first = sum(row["rank"] == 1 for row in faults)
    clean = sum(not row["extra"] for row in healthy)
    errors = [error for row in healthy if (error := emulation_error(row)) is not None]
    near = sum(error <= FAITHFUL for error in errors)
    told = [f"faults that had been missed: first in {first} of {len(faults)}"] if faults else []
    told += [f"healthy scripts: no finding on {clean} of {len(healthy)}"] if healthy else []
    if errors:
        told += [
            f"their emulated step within 10 % of the observed one: {near} of {len(errors)}; off by "
            f"{median(errors):.1%} in the median"
        ]
    told += [f"at {at}: {', '.join(each)}" for at, each in by_commit(rows).items()]
    return [*(line(row, row["truth"]) for row in rows), "", *told]


def emulation_error(row: dict[str, Any]) -> float | None:
    """Of the emulated step, by the observed one."""
    observed_ms, emulated_ms = row["steps"]["untraced_ms"], row["steps"]["emulated_ms"]
    return abs(emulated_ms / observed_ms - 1) if observed_ms and emulated_ms else None


def main() -> None:
    """Those of all rounds, or of those that are named."""
    kind, *rounds = sys.argv[1:]
    name = f"again_{kind}"
    kept = RESULTS / f"{name}.json"
    rows: dict[str, dict[str, Any]] = {
        row["case"]: row for row in (json.loads(kept.read_text()) if kept.exists() else ())
    }
    for case, truth in chosen(kind, rounds or list(KEPT_AS)):
        rows[named(case)] = row_of(examined(case), truth)
        print(line(rows[named(case)], truth), flush=True)
        save(name, lines_of(list(rows.values())), list(rows.values()), shown=False)
    told = lines_of(list(rows.values()))
    print("\n".join(told[told.index("") :]))


if __name__ == "__main__":
    main()
